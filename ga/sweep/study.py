"""Parameter tuning for the genetic strategies: one Optuna study, in any number of processes.

A trial searches every network of the study a few times with the same parameters and different seeds
(the same seeds in all trials). Its value is the mean over these searches of the cost relative to
that with the usual parameters (`ga.sweep.costs`), so the usual parameters have the value 1. Two
objectives have a value each: those of the period and of the memory.

Optuna's tree-structured Parzen estimator suggests parameters. A trial whose mean so far is worse
than the median of the earlier ones after as many searches is pruned; the searches themselves always
end, since a slowly cooling one is worse than others until it does. PED-ANOVA then says which
parameters mattered. The study is stored in a SQLite file, or in any database that SQLAlchemy can
reach (`ga.sweep.storage`).

Sources: T. Akiba et al., "Optuna: A next-generation hyperparameter optimization framework", KDD,
2019. S. Watanabe et al., "PED-ANOVA: Efficiently quantifying hyperparameter importance in arbitrary
subspaces", IJCAI, 2023.
"""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from ga.fronts import front
from ga.sweep.costs import Figures, period_and_memory, ratio, relative
from ga.sweep.held_signals import HeldSignals
from ga.sweep.spaces import Parameters, Space
from ga.sweep.storage import open_storage, shown
from partition.errors import PartitionError
from partition.strategies.base import Problem, SearchProgress, Strategy

UNPRUNED = 5
"""The number of trials that finish before any is pruned."""

ALIKE = 10
"""The number of finished trials after which a study stops if all their values are equal."""

_CLOSE = 1e-9
"""Relative differences of values that processors make, not parameters."""

_MADE_FOR = "made for"
_USUAL = "usual"
_SETTINGS = "settings"


@dataclass(frozen=True)
class Case:
    """A network on devices: one of the problems of a sweep. `digest` is that of the model."""

    problem: Problem
    digest: str


@dataclass(frozen=True)
class Sweep:
    """The subject of a sweep, and the storage of its study.

    Each trial searches every case `repeats` times, with the problem's seed and the seeds after it,
    and each search may price `budget` times the default number of states. With `two` objectives,
    these are the period and the memory of the plan. `url` is that of the storage (see
    `ga.sweep.storage.open_storage`).
    """

    space: Space
    cases: tuple[Case, ...]
    url: str
    study: str
    repeats: int = 3
    budget: float = 1.0
    two: bool = False

    @property
    def value_names(self) -> tuple[str, ...]:
        """The name of each value of a trial."""
        return ("period", "memory") if self.two else ("cost",)

    def searches(self, first: int = 0, repeats: int | None = None) -> tuple[Problem, ...]:
        """Return the problems to search: all cases with one seed, then with the next."""
        last = first + (self.repeats if repeats is None else repeats)
        return tuple(
            replace(case.problem, seed=case.problem.seed + repeat)
            for repeat in range(first, last)
            for case in self.cases
        )

    def usual(self) -> Parameters:
        """Return the strategy's default parameters, for the first case."""
        return self.space.usual(self.cases[0].problem, self.budget)

    def figures(self, problem: Problem, strategy: Strategy) -> Figures:
        """Search, and return the figures of the solution; raises `PartitionError`."""
        measure = period_and_memory if self.two else self.space.figures
        return measure(problem, strategy.solve(problem))

    def values(self, problem: Problem, found: Figures, usual: Figures) -> tuple[float, ...]:
        """Return the values of a search relative to those of another."""
        if self.two:
            return tuple(ratio(own, other) for own, other in zip(found, usual, strict=True))
        return (relative(problem, found, usual),)

    def conditions(self) -> dict[str, str]:
        """Return the conditions that a study's values depend on, each as a digest or a value."""
        found: dict[str, list[str]] = {}
        for case in self.cases:
            problem, layer_s = case.problem, case.problem.layer_s
            for name, value in {
                "devices": _digest([asdict(device) for device in problem.devices]),
                "pins": _digest(dict(problem.pins)),
                "slack_frames": str(problem.slack_frames),
                "seed": str(problem.seed),
                "within": f"{problem.within:g}",
                "times": "" if layer_s is None else _digest(layer_s.tolist()),
            }.items():
                found.setdefault(name, []).append(value)
        return {
            "strategy": self.space.name,
            "objective": "period and memory, " * self.two + self.cases[0].problem.objective,
            **{name: ", ".join(_once(values)) for name, values in found.items() if any(values)},
            "model": ", ".join(case.digest for case in self.cases),
            "repeats": str(self.repeats),
            "budget": f"{self.budget:g}",
            "values": "relative to the usual parameters",
        }


def _once(values: Sequence[str]) -> Sequence[str]:
    """Return a value once if all are the same."""
    return values[:1] if len(set(values)) == 1 else values


@dataclass(frozen=True)
class Trial:
    """One trial; `values` are empty if it was pruned or failed.

    `settings` include those that follow from the parameters.
    """

    number: int
    state: str
    values: tuple[float, ...]
    seconds: float
    parameters: Parameters
    settings: Parameters

    @property
    def cost(self) -> float:
        """The geometric mean of the values."""
        return _mean_cost(self.values)


@dataclass(frozen=True)
class Result:
    """The present state of a study: all its trials, in order, `before` of them from before this
    sweep.

    `importance`, largest first, adds up to 1; it is empty if trials are too few or all alike. The
    trials are `alike` if several are finished and all have the same values.
    """

    study: str
    storage: str
    value_names: tuple[str, ...]
    before: int
    trials: tuple[Trial, ...]
    importance: Mapping[str, float]
    interrupted: bool = field(default=False)

    def count(self, state: str) -> int:
        """Count the trials in `state`: `complete`, `pruned`, `fail` or `running`."""
        return sum(trial.state == state for trial in self.trials)

    @property
    def finished(self) -> tuple[Trial, ...]:
        """The finished trials, in order."""
        return tuple(trial for trial in self.trials if trial.values)

    @property
    def ranked(self) -> tuple[Trial, ...]:
        """The finished trials, the best first; of two objectives, those on the front first."""
        done = self.finished
        on_front = {trial.number for trial in self.front}
        return tuple(
            sorted(done, key=lambda each: (each.number not in on_front, each.cost, each.number))
        )

    @property
    def front(self) -> tuple[Trial, ...]:
        """The trials that no other dominates, by ascending period; () for one objective."""
        if len(self.value_names) == 1:
            return ()
        done = self.finished
        return tuple(done[index] for index in front([points(trial) for trial in done]))

    @property
    def best(self) -> Trial | None:
        """The trial with the least cost, of those that are worse than the usual parameters in no
        value, if there is one."""
        good = [trial for trial in self.finished if max(trial.values) <= 1]
        return min(good, key=lambda trial: (trial.cost, trial.number), default=None)

    @property
    def gain(self) -> float:
        """By which share of its costs the best trial is better than the usual parameters."""
        return 0.0 if self.best is None else 1 - self.best.cost

    @property
    def alike(self) -> bool:
        """See the class."""
        return len(self.finished) > 1 and _are_alike([trial.values for trial in self.finished])


def points(trial: Trial) -> tuple[float, float]:
    """Return the values of a finished trial with two objectives."""
    period, memory = trial.values
    return period, memory


OnTrial = Callable[[int, float, float | None], None]
"""Gets the number of new trials done, the completed part of the present one, and the best value."""


class _RefusedError(Exception):
    """With the parameters of a trial, a search finds nothing that fits."""


def run(sweep: Sweep, trials: int, seed: int | None, on_trial: OnTrial) -> Result:
    """Add `trials` trials to the study, which is created if there is none of that name.

    It stops earlier where `ALIKE` trials are finished and all are equal. `seed` is that of the
    choice of parameters. With None it is drawn at random, as processes that share a study should
    have it. After Ctrl-C the result contains the finished trials; after `SystemExit`, which a
    handler of SIGTERM may raise, the present trial is stored as failed, and the exception
    propagates. Raises `PartitionError` if there is nothing to tune, the usual parameters find
    nothing that fits, the storage cannot be used, or the study was made under other conditions.
    """
    if not all(case.problem.has_choice for case in sweep.cases):
        raise PartitionError(
            "no layer has a choice of device, so there is nothing to tune; name a second node or "
            "remove pins"
        )
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
        study = _open(sweep, storage, seed)
        before = len(study.get_trials(deepcopy=False))
        interrupted = _add(sweep, study, storage, trials, on_trial)
        return _result(sweep, study, before, interrupted)
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _add(
    sweep: Sweep, study: optuna.Study, storage: RDBStorage, trials: int, on_trial: OnTrial
) -> bool:
    """Add trials to the study; return whether Ctrl-C has ended the sweep."""
    done, untraced = 0, _untraced(study, storage)

    def objective(trial: optuna.Trial) -> tuple[float, ...]:
        with held.free():
            best = _best(study)
            return _try(sweep, study, trial, lambda part: on_trial(done, part, best))

    try:
        with HeldSignals() as held:
            while done < trials and not _is_settled(study):
                try:
                    study.optimize(objective, n_trials=1, catch=(_RefusedError,))
                except (optuna.exceptions.UpdateFinishedTrialError, ValueError) as error:
                    if not _is_lost(study, error):
                        raise
                if untraced:
                    for number in untraced & _untraced(study, storage):
                        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
                    untraced = set()
                done += 1
                with held.free():
                    on_trial(done, 0.0, _best(study))
    except KeyboardInterrupt:
        _fail_present(study)
        return True
    except SystemExit:  # Optuna leaves the trial running
        _fail_present(study)
        raise
    return False


def _fail_present(study: optuna.Study) -> None:
    """Fail the trial that this process has begun last, unless it is finished."""
    number = _present(study)
    if number is not None:
        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)


def _present(study: optuna.Study) -> int | None:
    assert isinstance(study.sampler, _UsualFirst)  # noqa: S101 - `_open` has set it
    return study.sampler.present


def _is_lost(study: optuna.Study, error: Exception) -> bool:
    """Return whether `error` says that another process has failed the present trial.

    It does so if this process gave no sign of life, such as one on a machine that was suspended.
    """
    number = _present(study)
    refused = isinstance(error, optuna.exceptions.UpdateFinishedTrialError)
    if number is None or not (refused or "Cannot tell" in str(error)):
        return False
    return study.get_trials(deepcopy=False)[number].state == TrialState.FAIL


def _is_settled(study: optuna.Study) -> bool:
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return len(done) >= ALIKE and _are_alike([trial.values for trial in done])


def _are_alike(values: Sequence[Sequence[float]]) -> bool:
    return all(
        math.isclose(own, first, rel_tol=_CLOSE)
        for each in values
        for own, first in zip(each, values[0], strict=True)
    )


def _untraced(study: optuna.Study, storage: RDBStorage) -> set[int]:
    """Return the numbers of the running trials without any heartbeat.

    Optuna fails trials whose heartbeat has stopped, and not these. A trial has its first heartbeat
    within milliseconds; the process of one that stays without it was killed before.
    """
    with storage.engine.connect() as connection:
        rows = connection.execute(sqlalchemy.text("SELECT trial_id FROM trial_heartbeats"))
        traced = {row[0] for row in rows}
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return {trial.number for trial in running if trial._trial_id not in traced}


class _UsualFirst(optuna.samplers.TPESampler):
    """Gives a study's first trial the default parameters.

    Where a storage has no row locks, as SQLite has none, two processes may both take a trial that
    was enqueued with them, so the sampler suggests them. `present` is the number of the trial that
    this process has begun last.
    """

    present: int | None = None

    def __init__(self, usual: Parameters, seed: int | None) -> None:
        super().__init__(seed=seed, constant_liar=True)
        self._usual = usual

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.present = trial.number
        super().before_trial(study, trial)

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
    given = sweep.conditions()
    try:
        study = optuna.create_study(
            storage=storage,
            study_name=sweep.study,
            sampler=_UsualFirst(sweep.usual(), seed),
            pruner=optuna.pruners.MedianPruner(UNPRUNED),
            directions=["minimize"] * len(sweep.value_names),
            load_if_exists=True,
        )
    except ValueError:  # a study of that name has another number of objectives
        raise _other_study(sweep, ["objective"]) from None
    found = study.user_attrs.get(_MADE_FOR)
    if found is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(_MADE_FOR, given)
    elif found != given:
        known = found if isinstance(found, dict) else {}
        raise _other_study(
            sweep, [key for key in {**given, **known} if known.get(key) != given.get(key)]
        )
    return study


def _other_study(sweep: Sweep, other: Sequence[str]) -> PartitionError:
    return PartitionError(
        f"study {sweep.study!r} in {shown(sweep.url)} was made for something else: not the same "
        f"{' and '.join(other)}, so its values cannot be compared; begin another study with "
        "--study NAME"
    )


def _try(
    sweep: Sweep, study: optuna.Study, trial: optuna.Trial, on_part: Callable[[float], None]
) -> tuple[float, ...]:
    """Return the means of the searches' values; raises `TrialPruned` for a poor trial."""
    space, budget = sweep.space, sweep.budget
    parameters = space.suggest(trial, sweep.cases[0].problem)
    settings = space.settings(sweep.cases[0].problem, parameters, budget)
    trial.set_user_attr(_SETTINGS, dict(settings))
    usual = _usual_figures(sweep, study, on_part)
    searches = sweep.searches()
    values: list[tuple[float, ...]] = []
    for number, (problem, other) in enumerate(zip(searches, usual, strict=True)):
        if parameters == space.usual(problem, budget):
            values.append((1.0,) * len(sweep.value_names))
        else:
            strategy = space.strategy(problem, parameters, budget)
            watched = _watched(problem, number, len(searches), on_part)
            try:
                found = sweep.figures(watched, strategy)
            except PartitionError as error:
                raise _RefusedError(str(error)) from None
            values.append(sweep.values(problem, found, other))
        if not sweep.two:
            trial.report(float(np.mean(values)), number)
            if number + 1 < len(searches) and trial.should_prune():
                raise optuna.TrialPruned
    return tuple(float(mean) for mean in np.mean(values, axis=0))


def _usual_figures(
    sweep: Sweep, study: optuna.Study, on_part: Callable[[float], None]
) -> list[Figures]:
    """Return the figures of all searches with the usual parameters, which the study keeps.

    Processes that begin a study together all find them, and all find the same.
    """
    kept = study.user_attrs.get(_USUAL)
    if kept is not None:
        return [tuple(figures) for figures in kept]
    searches = sweep.searches()
    found: list[Figures] = []
    for number, problem in enumerate(searches):
        parameters = sweep.space.usual(problem, sweep.budget)
        strategy = sweep.space.strategy(problem, parameters, sweep.budget)
        watched = _watched(problem, number, len(searches), on_part)
        found.append(sweep.figures(watched, strategy))
    study.set_user_attr(_USUAL, found)
    return found


def _watched(
    problem: Problem, number: int, searches: int, on_part: Callable[[float], None]
) -> Problem:
    """Return a problem whose search reports its part of all `searches`."""

    def on_progress(search: SearchProgress) -> None:
        on_part((number + search.done / max(1, search.total)) / searches)

    return replace(problem, on_progress=on_progress)


def _result(sweep: Sweep, study: optuna.Study, before: int, interrupted: bool) -> Result:
    frozen = study.get_trials(deepcopy=False)
    trials = tuple(_trial(trial) for trial in frozen if trial.state != TrialState.WAITING)
    return Result(
        sweep.study,
        shown(sweep.url),
        sweep.value_names,
        before,
        trials,
        _importance(study, [trial.cost for trial in trials if trial.values]),
        interrupted,
    )


def _trial(trial: FrozenTrial) -> Trial:
    seconds = trial.duration.total_seconds() if trial.duration else 0.0
    values = tuple(trial.values) if trial.state == TrialState.COMPLETE else ()
    settings = trial.user_attrs.get(_SETTINGS, {})
    return Trial(trial.number, trial.state.name.lower(), values, seconds, trial.params, settings)


def _importance(study: optuna.Study, costs: list[float]) -> dict[str, float]:
    """Return each parameter's importance for being in the best tenth, or the best two."""
    if len(costs) < UNPRUNED or min(costs) == max(costs):
        return {}
    # Slow to import: scikit-learn.
    from optuna.importance import (  # noqa: PLC0415
        PedAnovaImportanceEvaluator,
        get_param_importances,
    )

    evaluator = PedAnovaImportanceEvaluator(target_quantile=max(0.1, 2 / len(costs)))
    try:
        found = get_param_importances(
            study, evaluator=evaluator, target=lambda trial: _mean_cost(trial.values)
        )
    except (RuntimeError, ValueError):  # too few different values
        return {}
    return {name: float(value) for name, value in found.items()} if sum(found.values()) else {}


def _mean_cost(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.prod(values) ** (1 / len(values))


def _best(study: optuna.Study) -> float | None:
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return min((_mean_cost(trial.values) for trial in done), default=None)


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
