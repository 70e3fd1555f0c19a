"""Parameter tuning for the genetic strategies: one Optuna study, in any number of processes.

A trial searches a few times with the same parameters and different seeds (the same seeds in all
trials), and its value is the mean. Optuna's tree-structured Parzen estimator suggests parameters. A
trial whose best value so far is worse than the median of the earlier ones at the same point is
pruned. PED-ANOVA then says which parameters mattered. The study is stored in a SQLite file, or in
any database that SQLAlchemy can reach.

Sources: T. Akiba et al., "Optuna: A next-generation hyperparameter optimization framework", KDD,
2019. S. Watanabe et al., "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary
subspaces", IJCAI, 2023.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import sqlalchemy
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from ga.genes import genes
from ga.sweep.spaces import Parameters, Space
from partition.errors import PartitionError
from partition.strategies.base import Problem

WAIT_S = 60.0
"""Seconds that a process waits for another one that is writing the same SQLite file."""

_ATTEMPTS = 5


def storage_url(text: str) -> str:
    """Return the URL of a database; text that is no URL is the path of a SQLite file.

    Raises `PartitionError` for a path that a URL cannot have.

    >>> storage_url("sqlite:////tmp/a.db")
    'sqlite:////tmp/a.db'
    """
    if text.startswith("postgres://"):  # as hosts of databases write it
        return text.replace("postgres://", "postgresql://", 1)
    if "://" in text:
        return text
    path = str(Path(os.path.expanduser(text)).absolute())
    if (found := re.search(r"[?{}]", path)) is not None:
        raise PartitionError(f"--storage {path}: must not contain {found[0]!r}; name another file")
    return f"sqlite:///{path}"


def shown(url: str) -> str:
    """Return a URL without its password, or the path of a SQLite file; raises `PartitionError`."""
    try:
        parsed = sqlalchemy.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        raise PartitionError(
            f"--storage {url!r}: is no database URL; write one such as "
            "postgresql://user:password@host/database, or a file's name"
        ) from None
    if parsed.drivername == "sqlite" and parsed.database:
        return parsed.database
    return parsed.render_as_string(hide_password=True)


def open_storage(url: str) -> RDBStorage:
    """Open or create a storage; raises `PartitionError` if it cannot be used.

    Several processes may open a storage that does not exist yet: one that finds incomplete tables
    tries again.
    """
    name = shown(url)
    if url.startswith("sqlite"):
        _check_file(Path(name))
    # A writing transaction takes its lock at the start, so that no two wait for each other.
    arguments = {"timeout": WAIT_S, "isolation_level": "IMMEDIATE"}
    engine: dict[str, object] = {"connect_args": arguments} if url.startswith("sqlite") else {}
    if engine and sqlalchemy.make_url(url).database not in {None, ":memory:"}:
        engine["poolclass"] = sqlalchemy.NullPool  # closes the file, even after an error
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(PartitionError):
            return _opened(url, name, engine)
    return _opened(url, name, engine)


def _opened(url: str, name: str, engine: Mapping[str, object]) -> RDBStorage:
    try:
        return RDBStorage(url, engine_kwargs=dict(engine))
    except ImportError as error:
        raise PartitionError(
            f"storage {name}: its driver is not installed ({_cause(error)}); pip install it"
        ) from None
    except sqlalchemy.exc.OperationalError as error:
        raise PartitionError(f"storage {name}: cannot be opened: {_cause(error)}") from None
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        raise PartitionError(
            f"storage {name}: is no database that Optuna can use: {_cause(error)}"
        ) from None


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise PartitionError(f"storage {path}: is a folder; name a file")
    if not path.parent.is_dir():
        raise PartitionError(f"storage {path}: there is no folder {path.parent}; make it first")


def _cause(error: BaseException) -> str:
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) and error.orig else error
    cause = cause.__cause__ or cause
    return " ".join(str(cause).split())


POINTS = 20
"""The number of times that each search of a trial reports its best value."""

UNPRUNED = 5
"""The number of trials that finish before any is pruned."""

_MADE_FOR = "made for"
_SETTINGS = "settings"


@dataclass(frozen=True)
class Sweep:
    """The subject of a sweep, and the storage of its study.

    Each trial searches `repeats` times, with the problem's seed and the seeds after it, and each
    search may price `budget` times the default number of states. `url` is that of the storage (see
    `open_storage`).
    """

    space: Space
    problem: Problem
    model_digest: str
    url: str
    study: str
    repeats: int = 3
    budget: float = 1.0

    def conditions(self) -> dict[str, str]:
        """Return the conditions that a study's values depend on, each as a digest or a value."""
        problem = self.problem
        layer_s = problem.layer_s
        measured = {} if layer_s is None else {"times": _digest(layer_s.tolist())}
        return measured | {
            "strategy": self.space.name,
            "objective": problem.objective,
            "model": self.model_digest,
            "devices": _digest([asdict(device) for device in problem.devices]),
            "pins": _digest(dict(problem.pins)),
            "slack_frames": str(problem.slack_frames),
            "seed": str(problem.seed),
            "repeats": str(self.repeats),
            "budget": f"{self.budget:g}",
        }


@dataclass(frozen=True)
class Trial:
    """One trial; `value` is None if it was pruned or failed.

    `settings` include those that follow from the parameters.
    """

    number: int
    state: str
    value: float | None
    seconds: float
    parameters: Parameters
    settings: Parameters


@dataclass(frozen=True)
class Result:
    """The present state of a study: all its trials, in order, `before` of them from before this
    sweep.

    `usual` is the value of the strategy's default parameters, if they were tried. `importance`,
    largest first, adds up to 1; it is empty if trials are too few or all alike.
    """

    study: str
    storage: str
    value_name: str
    before: int
    trials: tuple[Trial, ...]
    usual: float | None
    importance: Mapping[str, float]
    gain: float | None
    interrupted: bool = field(default=False)

    def count(self, state: str) -> int:
        """Count the trials in `state`: `complete`, `pruned`, `fail` or `running`."""
        return sum(trial.state == state for trial in self.trials)

    @property
    def ranked(self) -> tuple[Trial, ...]:
        """The finished trials, the best first."""
        done = [trial for trial in self.trials if trial.value is not None]
        return tuple(sorted(done, key=lambda trial: (trial.value, trial.number)))


OnTrial = Callable[[int, float, float | None], None]
"""Gets the number of new trials done, the completed part of the present one, and the best value."""


def run(sweep: Sweep, trials: int, seed: int | None, on_trial: OnTrial) -> Result:
    """Add `trials` trials to the study, which is created if there is none of that name.

    `seed` is that of the choice of parameters. None draws one, as processes that share a study
    should. After Ctrl-C the result contains the finished trials. Raises `PartitionError` if there
    is nothing to tune, the storage cannot be used, or the study was made under other conditions.
    """
    _check_choice(sweep.problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)
        try:
            return _run(sweep, trials, seed, on_trial)
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError) as error:
            cause = " ".join(str(error.__cause__ or error).split())
            raise PartitionError(f"storage {shown(sweep.url)}: {cause}") from error


def _run(sweep: Sweep, trials: int, seed: int | None, on_trial: OnTrial) -> Result:
    storage = open_storage(sweep.url)
    try:
        return _add(sweep, _open(sweep, storage, seed), trials, on_trial)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _add(sweep: Sweep, study: optuna.Study, trials: int, on_trial: OnTrial) -> Result:
    before = len(study.get_trials(deepcopy=False))
    done = 0

    def objective(trial: optuna.Trial) -> float:
        return _try(sweep, trial, lambda part: on_trial(done, part, _best(study)))

    def finished(_study: optuna.Study, _trial: FrozenTrial) -> None:
        nonlocal done
        done += 1
        on_trial(done, 0.0, _best(study))

    interrupted = False
    try:
        study.optimize(objective, n_trials=trials, callbacks=[finished])
    except KeyboardInterrupt:
        interrupted = True
    return _result(sweep, study, before, interrupted)


class _UsualFirst(optuna.samplers.TPESampler):
    """Gives a study's first trial the default parameters.

    Where a storage has no row locks, as SQLite has none, two processes may both take a trial that
    was enqueued with them, so the sampler suggests them.
    """

    def __init__(self, usual: Parameters, seed: int | None) -> None:
        super().__init__(seed=seed, constant_liar=True)
        self._usual = usual

    def sample_independent(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: optuna.distributions.BaseDistribution,
    ) -> Any:
        if trial.number == 0:
            return self._usual[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)


def _open(sweep: Sweep, storage: RDBStorage, seed: int | None) -> optuna.Study:
    study = optuna.create_study(
        storage=storage,
        study_name=sweep.study,
        sampler=_UsualFirst(sweep.space.usual(sweep.problem, sweep.budget), seed),
        pruner=optuna.pruners.MedianPruner(UNPRUNED, n_warmup_steps=POINTS // 4),
        load_if_exists=True,
    )
    given, found = sweep.conditions(), study.user_attrs.get(_MADE_FOR)
    if found is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(_MADE_FOR, given)
    elif found != given:
        known = found if isinstance(found, dict) else {}
        other = [key for key in {**given, **known} if known.get(key) != given.get(key)]
        raise PartitionError(
            f"study {sweep.study!r} in {shown(sweep.url)} was made for something else: not the "
            f"same {' and '.join(other)}, so that its values cannot be compared; begin another "
            "with --study NAME"
        )
    return study


def _try(sweep: Sweep, trial: optuna.Trial, on_part: Callable[[float], None]) -> float:
    """Return the mean value of the trial's searches; raises `TrialPruned` for a poor trial."""
    space, problem = sweep.space, sweep.problem
    parameters = space.suggest(trial)
    trial.set_user_attr(_SETTINGS, dict(space.settings(problem, parameters, sweep.budget)))
    values: list[float] = []
    ended: list[float] = []
    for repeat in range(sweep.repeats):
        reported, latest = 0, float("nan")

        def watch(part: float, value: float) -> None:
            nonlocal reported, latest
            latest = value
            point = int(POINTS * part)
            if point <= reported:
                return
            reported = point
            step = len(ended) * POINTS + point
            trial.report(float(np.mean([*ended, value])), step)
            on_part(step / (sweep.repeats * POINTS))
            if trial.should_prune():
                raise optuna.TrialPruned

        again = replace(problem, seed=problem.seed + repeat)
        values.append(space.search(again, parameters, sweep.budget, watch))
        ended.append(latest)
    return float(np.mean(values))


def _result(sweep: Sweep, study: optuna.Study, before: int, interrupted: bool) -> Result:
    frozen = study.get_trials(deepcopy=False)
    trials = tuple(_trial(trial) for trial in frozen if trial.state != TrialState.WAITING)
    given = sweep.space.usual(sweep.problem, sweep.budget)
    done = [trial for trial in trials if trial.value is not None]
    usual = next((trial.value for trial in done if trial.parameters == given), None)
    best = min((trial.value for trial in done if trial.value is not None), default=None)
    return Result(
        sweep.study,
        shown(sweep.url),
        sweep.space.value_name,
        before,
        trials,
        usual,
        _importance(study, [trial.value for trial in done if trial.value is not None]),
        None if usual is None or best is None else sweep.space.gain(usual, best),
        interrupted,
    )


def _trial(trial: FrozenTrial) -> Trial:
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    value = trial.value if trial.state == TrialState.COMPLETE else None
    settings = trial.user_attrs.get(_SETTINGS, {})
    return Trial(trial.number, trial.state.name.lower(), value, seconds, trial.params, settings)


def _importance(study: optuna.Study, values: list[float]) -> dict[str, float]:
    """Return each parameter's importance for being in the best tenth, or the best two."""
    if len(values) < UNPRUNED or min(values) == max(values):
        return {}
    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(0.1, 2 / len(values)))
    try:
        found = get_param_importances(study, evaluator=evaluator)
    except (RuntimeError, ValueError):  # too few different values
        return {}
    return {name: float(value) for name, value in found.items()} if sum(found.values()) else {}


def _best(study: optuna.Study) -> float | None:
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return min((trial.value for trial in done if trial.value is not None), default=None)


def _check_choice(problem: Problem) -> None:
    if len(problem.devices) == 1 or (genes(problem).pinned >= 0).all():
        raise PartitionError(
            "no layer has a choice of device, so that there is nothing to tune; name a second node "
            "or remove pins"
        )


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
