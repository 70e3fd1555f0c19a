"""Sweeps: studies that are kept, shared and refused, and searches that cost the same."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sqlite3
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import TrialState

from ga.hybrid.strategy import HybridEffort
from ga.runs.search import RunEffort
from ga.sweep.spaces import SPACES, HybridSpace, RunsSpace, Space
from ga.sweep.storage import GRACE_S, open_storage, shown, storage_url
from ga.sweep.study import ALIKE, Case, Result, Sweep, run
from ga.vertical import Effort
from partition.devices import Device
from partition.errors import DoesNotFitError, PartitionError
from partition.strategies.base import Problem, Solution
from tests.partition.networks import chain, residual
from tests.partition.rewriting_contract import chain_model
from tests.partition.strategy_contract import equal

BUDGET = 0.01
SMALL = Problem(residual(2), equal(3))


def sweep_in(folder: Path, problem: Problem = SMALL, space: str = "vertical-paper") -> Sweep:
    url = storage_url(str(folder / "sweep.db"))
    cases = (Case(problem, "digest"),)
    return Sweep(SPACES[space], cases, url, "study", repeats=1, budget=BUDGET)


def forgetful(problem: Problem = SMALL, space: str = "vertical-paper") -> Sweep:
    """A study in memory, for what one run shows."""
    return replace(sweep_in(Path(), problem, space), url="sqlite:///:memory:")


def ignore(_done: int, _part: float, _best: float | None) -> None:
    """For those who do not watch."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "two"),
    [
        *((space, False) for space in SPACES),
        ("vertical", True),
        *(
            pytest.param(each, True, marks=pytest.mark.further)
            for each in SPACES
            if each != "vertical"
        ),
    ],
)
def test_a_sweep_begins_with_the_usual_parameters_and_ends_no_worse(space: str, two: bool) -> None:
    model = chain_model(6)
    problem = Problem(model.network, equal(3), model=model)
    heard: list[int] = []
    sweep = replace(forgetful(problem, space), two=two)
    result = run(sweep, 7, 0, lambda done, _part, _best: heard.append(done))
    assert result.trials[0].parameters == sweep.usual()
    assert result.trials[0].values == (1.0,) * (1 + two)
    assert result.gain >= 0
    assert len(result.trials) == heard[-1] == 7
    assert heard == sorted(heard)
    assert result.count("complete") + result.count("pruned") == 7
    assert bool(result.front) == two
    if result.importance:
        assert sum(result.importance.values()) == pytest.approx(1)


def test_trials_are_added_to_a_study_that_is_there(tmp_path: Path) -> None:
    first = run(sweep_in(tmp_path), 1, 0, ignore)
    second = run(sweep_in(tmp_path), 1, 1, ignore)
    assert (first.before, second.before) == (0, 1)
    assert len(second.trials) == 2
    assert second.trials[:1] == first.trials


def test_a_seed_determines_the_choice_of_parameters() -> None:
    def choices(seed: int) -> list[float]:
        return [trial.parameters["x"] for trial in run_with(Hopeless(), 2, seed=seed).trials]

    assert choices(7) == choices(7) != choices(8)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (replace(SMALL, seed=1), "seed"),
        (replace(SMALL, devices=equal(3, 10**9)), "devices"),
        (replace(SMALL, objective="memory"), "objective"),
        (replace(SMALL, within=0.2), "within"),
    ],
)
def test_values_depend_on_the_problem(changed: Problem, named: str) -> None:
    usual, other = forgetful().conditions(), forgetful(changed).conditions()
    assert [key for key, value in usual.items() if other[key] != value] == [named]


def test_values_depend_on_pins() -> None:
    pinned = replace(SMALL, pins={SMALL.network.layers[0].name: "d0"})
    assert forgetful(pinned).conditions() != forgetful().conditions()


def test_measured_times_make_another_study(tmp_path: Path) -> None:
    measured = replace(SMALL, layer_s=SMALL.costs.layer_s * 2)
    run(sweep_in(tmp_path, measured), 1, 0, ignore)
    run(sweep_in(tmp_path, measured), 1, 0, ignore)
    with pytest.raises(PartitionError, match="not the same times, so its values"):
        run(sweep_in(tmp_path), 1, 0, ignore)


def test_a_study_for_something_else_is_refused(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path)
    run(sweep, 1, 0, ignore)
    another = (Case(SMALL, "another"),)
    with pytest.raises(PartitionError, match=r"not the same model, .* --study NAME"):
        run(replace(sweep, cases=another), 1, 0, ignore)
    with pytest.raises(PartitionError, match=r"not the same model, .* --study NAME"):
        run(replace(sweep, cases=sweep.cases * 2), 1, 0, ignore)
    with pytest.raises(PartitionError, match=r"not the same objective, .* --study NAME"):
        run(replace(sweep, two=True), 1, 0, ignore)


def test_a_sweep_leaves_its_storage_closed(tmp_path: Path) -> None:
    run(sweep_in(tmp_path), 1, 0, ignore)
    opened = {os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()}
    assert str(tmp_path / "sweep.db") not in opened
    assert opened


def test_a_study_of_somebody_else_is_refused(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path)
    study = optuna.create_study(storage=open_storage(sweep.url), study_name="study")
    study.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(PartitionError, match="made for something else"):
        run(sweep, 1, 0, ignore)


class Hopeless:
    """Searches of which each costs more than the one before: 1, 2, 3, …"""

    name = "hopeless"

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.searched = 0
        self._interrupt_at = interrupt_at

    def usual(self, problem: Problem, budget: float) -> dict[str, float]:
        return {"x": 0.5}

    def suggest(self, trial: optuna.Trial, problem: Problem, prefix: str = "") -> dict[str, float]:
        return {"x": trial.suggest_float("x", 0.0, 1.0)}

    def settings(self, problem: Problem, parameters: object, budget: float) -> dict[str, float]:
        return {}

    def strategy(self, problem: Problem, parameters: object, budget: float) -> Hopeless:
        return self

    def solve(self, problem: Problem) -> Solution:
        if self.searched == self._interrupt_at:
            self.end()
        self.searched += 1
        return Solution({}, "")

    def end(self) -> None:
        raise KeyboardInterrupt

    def cost(self, problem: Problem) -> float:
        return float(self.searched)

    def figures(self, problem: Problem, solution: Solution) -> tuple[float, ...]:
        return (math.log(self.cost(problem)),)

    def sections(self, parameters: object) -> dict[str, dict[str, float]]:
        return {}


def run_with(
    space: Space,
    trials: int,
    repeats: int = 1,
    seed: int = 0,
    cases: tuple[Case, ...] = (Case(SMALL, "digest"),),
    url: str = "sqlite:///:memory:",
) -> Result:
    sweep = Sweep(space, cases, url, "study", repeats=repeats)
    return run(sweep, trials, seed, ignore)


def test_hopeless_trials_are_given_up_after_the_first_few() -> None:
    result = run_with(Hopeless(), 7, repeats=2)
    assert [trial.state for trial in result.trials] == ["complete"] * 5 + ["pruned"] * 2
    assert [trial.number for trial in result.ranked] == [0, 1, 2, 3, 4]
    assert result.gain == 0.0


def test_a_trial_with_one_search_is_never_given_up() -> None:
    assert run_with(Hopeless(), 7).count("complete") == 7


def test_a_pruned_trial_keeps_the_mean_of_its_finished_searches(tmp_path: Path) -> None:
    url = storage_url(str(tmp_path / "sweep.db"))
    run_with(Hopeless(), 6, repeats=2, url=url)
    study = optuna.load_study(storage=open_storage(url), study_name="study")
    pruned = study.get_trials(states=(TrialState.PRUNED,))
    # the usual parameters cost 1 and 2, and the four trials after them 3 to 10
    assert [(trial.value, trial.intermediate_values) for trial in pruned] == [
        (pytest.approx(11.0), {0: pytest.approx(11.0)})
    ]
    done = study.get_trials(states=(TrialState.COMPLETE,))
    assert [trial.value for trial in done] == pytest.approx([1, 2.5, 4.0, 5.5, 7.0])


def test_the_value_of_a_trial_is_the_mean_of_the_ratios_of_its_searches() -> None:
    result = run_with(Hopeless(), 2, repeats=3)
    assert result.trials[0].values == (1.0,)
    assert result.trials[1].values == (pytest.approx((4 / 1 + 5 / 2 + 6 / 3) / 3),)


class Sized(Hopeless):
    """The cost is a large number for a large network, times a factor of the parameters."""

    def strategy(self, problem: Problem, parameters: object, budget: float) -> Hopeless:
        assert isinstance(parameters, dict)
        self.x = parameters["x"]
        return self

    def cost(self, problem: Problem) -> float:
        layers = len(problem.network.layers)
        return 10.0**layers * (1 + self.x) ** (1 if layers < 5 else 2)


def test_networks_of_all_sizes_count_the_same() -> None:
    small, large = Problem(chain(1, 1, 1), equal(2)), Problem(chain(*[1] * 9), equal(2))
    result = run_with(Sized(), 4, cases=(Case(small, "small"), Case(large, "large")))
    for trial in result.finished:
        part = (1 + trial.parameters["x"]) / 1.5
        assert trial.values == (pytest.approx((part + part**2) / 2),)
    assert result.best is not None
    assert result.best.parameters["x"] == min(trial.parameters["x"] for trial in result.finished)


class Indifferent(Hopeless):
    """All parameters find the same."""

    def cost(self, problem: Problem) -> float:
        return 3.0


def test_a_study_whose_trials_are_all_equal_stops(tmp_path: Path) -> None:
    url = storage_url(str(tmp_path / "sweep.db"))
    space = Indifferent()
    result = run_with(space, 50, url=url)
    assert len(result.finished) == ALIKE
    assert result.alike
    assert result.gain == 0
    assert not result.importance
    searched = space.searched
    assert len(run_with(space, 50, url=url).trials) == ALIKE
    assert space.searched == searched


def test_trials_of_different_values_are_not_alike() -> None:
    assert not run_with(Hopeless(), ALIKE).alike


class Refusing(Hopeless):
    """Finds nothing that fits from some search on."""

    def solve(self, problem: Problem) -> Solution:
        if self.searched == 2:
            raise DoesNotFitError("nothing fits")
        return super().solve(problem)


def test_a_trial_that_finds_nothing_that_fits_is_a_failed_one() -> None:
    result = run_with(Refusing(), 4)
    assert [trial.state for trial in result.trials] == ["complete"] * 2 + ["fail"] * 2


class Broken(Hopeless):
    """A mistake of ours in the third search."""

    def end(self) -> None:
        raise ValueError("a mistake")


def test_mistakes_of_a_search_are_not_hidden() -> None:
    with pytest.raises(ValueError, match="a mistake"):
        run_with(Broken(interrupt_at=2), 9)


def test_usual_parameters_that_find_nothing_that_fits_end_the_sweep() -> None:
    with pytest.raises(PartitionError, match="nothing fits"):
        run_with(Refusing(), 4, repeats=3)


def test_what_is_finished_before_ctrl_c_is_kept() -> None:
    result = run_with(Hopeless(interrupt_at=2), 9)
    assert result.interrupted
    assert [trial.state for trial in result.trials] == ["complete", "complete", "fail"]
    assert [trial.values for trial in result.ranked] == [(1.0,), (pytest.approx(2.0),)]


class Stopped(Hopeless):
    """A handler of SIGTERM raises `SystemExit` in the middle of a search."""

    def end(self) -> None:
        raise SystemExit(128 + signal.SIGTERM)


def states(url: str) -> list[str]:
    study = optuna.load_study(storage=open_storage(url), study_name="study")
    return [trial.state.name for trial in study.get_trials()]


def test_a_worker_that_is_told_to_exit_leaves_no_running_trial(tmp_path: Path) -> None:
    url = storage_url(str(tmp_path / "sweep.db"))
    with pytest.raises(SystemExit) as stopped:
        run_with(Stopped(interrupt_at=2), 9, url=url)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert states(url) == ["COMPLETE", "COMPLETE", "FAIL"]


class Killed(Hopeless):
    """The process is killed in the middle of a search."""

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def add_until_killed(url: str) -> None:
    run_with(Killed(interrupt_at=2), 9, url=url)


def age(url: str, seconds: float) -> None:
    """Let the last signs of life be older."""
    with open_storage(url).engine.begin() as connection:
        text = sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, :by)")
        assert connection.execute(text, {"by": f"-{seconds} seconds"}).rowcount


@pytest.mark.slow
def test_the_trial_of_a_killed_worker_is_found_and_tried_again(tmp_path: Path) -> None:
    url = storage_url(str(tmp_path / "sweep.db"))
    worker = multiprocessing.get_context("spawn").Process(target=add_until_killed, args=(url,))
    worker.start()
    worker.join(timeout=120)
    assert worker.exitcode == -signal.SIGKILL
    assert states(url) == ["COMPLETE", "COMPLETE", "RUNNING"]
    run_with(Hopeless(), 1, seed=1, url=url)
    assert states(url) == ["COMPLETE", "COMPLETE", "RUNNING", "COMPLETE"]  # it may be alive
    age(url, GRACE_S + 60)
    result = run_with(Hopeless(), 1, seed=2, url=url)
    assert states(url) == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert result.trials[4].parameters == result.trials[2].parameters


def test_the_trial_of_a_process_that_was_killed_before_it_gave_a_sign_of_life_is_failed(
    tmp_path: Path,
) -> None:
    url = storage_url(str(tmp_path / "sweep.db"))
    run_with(Hopeless(), 1, url=url)
    with pytest.warns(UserWarning, match="Heartbeat"):
        optuna.load_study(storage=open_storage(url), study_name="study").ask()
    run_with(Hopeless(), 0, url=url)
    assert states(url) == ["COMPLETE", "RUNNING"]  # it may be about to give one
    run_with(Hopeless(), 1, url=url)
    assert states(url) == ["COMPLETE", "FAIL", "COMPLETE"]


class Suspended(Hopeless):
    """Another process takes this one for dead, in the middle of its third search."""

    def __init__(self, url: str) -> None:
        super().__init__(interrupt_at=2)
        self._url = url

    def end(self) -> None:
        study = optuna.load_study(storage=open_storage(self._url), study_name="study")
        study.tell(2, state=TrialState.FAIL)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_process_that_was_believed_dead_continues_with_the_next_trial(
    tmp_path: Path, repeats: int
) -> None:
    url = storage_url(str(tmp_path / "sweep.db"))
    space = Suspended(url)
    if repeats == 2:
        space._interrupt_at = 4
    result = run_with(space, 4, repeats, url=url)
    assert [trial.state for trial in result.trials] == ["complete", "complete", "fail", "complete"]


def add_trials(folder: str, trials: int) -> None:
    run(sweep_in(Path(folder)), trials, None, ignore)


@pytest.mark.slow
def test_two_processes_share_a_study_that_neither_has_begun(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_trials, args=(str(tmp_path), 2)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    result = run(sweep_in(tmp_path), 1, 0, ignore)
    assert result.before == 4
    assert [trial.number for trial in result.trials] == list(range(5))
    assert result.count("fail") == result.count("running") == 0


@given(
    st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    st.integers(4, 40),
    st.floats(0, 0.9),
    st.integers(4, 256),
)
def test_every_trial_prices_about_the_usual_number_of_states(
    budget: float, fours: int, evolved: float, chains: int
) -> None:
    space = SPACES["vertical"]
    usual = space.settings(SMALL, space.usual(SMALL, budget), budget)
    given = {"individuals": 4 * fours, "evolved": evolved, "chains": chains}
    drawn = {**space.usual(SMALL, budget), **given}
    settings = space.settings(SMALL, drawn, budget)

    def priced(found: object) -> float:
        assert isinstance(found, dict)
        evolution = found["individuals"] * found["generations"]
        return float(evolution + found["chains"] * found["steps"])

    assert abs(priced(settings) - priced(usual)) <= chains + 4 * fours + Effort().chains


@given(
    st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    st.integers(4, 60),
    st.integers(2, 16),
    st.integers(4, 40),
    st.integers(20, 4000),
    st.integers(2, 30),
)
def test_every_trial_of_runs_takes_about_the_usual_number_of_steps(
    budget: float, twelves: int, rounds: int, fours: int, tensors: int, devices: int
) -> None:
    parameters = {"chains": 12 * twelves, "rounds": rounds, "individuals": 4 * fours}

    def priced(effort: RunEffort) -> float:
        annealed = effort.chains * effort.rounds * effort.steps(tensors, devices)
        bred = effort.nsga.individuals * effort.nsga.generations * (effort.rounds - 1)
        return annealed + bred

    usual = RunEffort()
    steps = usual.chains * usual.rounds * usual.steps(tensors, devices)
    bred = usual.nsga.individuals * usual.nsga.generations * (usual.rounds - 1)
    effort = RunsSpace().effort(parameters, budget)
    # a round has whole steps, and each of its populations a whole generation
    slack = budget * usual.chains * usual.rounds + 2 * effort.chains * rounds
    slack += effort.nsga.individuals * rounds
    assert abs(priced(effort) - budget * (steps + bred)) <= slack


def test_the_usual_parameters_are_those_of_the_strategy() -> None:
    space, effort = SPACES["vertical"], Effort()
    settings = space.settings(SMALL, space.usual(SMALL, 1.0), 1.0)
    assert settings["individuals"] == effort.nsga.individuals
    assert settings["generations"] == effort.nsga.generations
    assert (settings["chains"], settings["heat"]) == (effort.chains, effort.heat)
    paper = SPACES["vertical-paper"]
    assert paper.settings(SMALL, paper.usual(SMALL, 1.0), 1.0)["generations"] == 100
    assert RunsSpace().effort({}, 1.0) == RunEffort()
    assert HybridSpace().effort({}, 1.0) == HybridEffort()


def test_without_a_choice_there_is_nothing_to_tune(tmp_path: Path) -> None:
    alone = Problem(chain(1, 1), (Device("only"),))
    with pytest.raises(PartitionError, match="nothing to tune"):
        run(sweep_in(tmp_path, alone), 1, 0, ignore)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in shown("postgresql://me:secret@host/base")


@pytest.mark.parametrize(
    ("storage", "sentence"),
    [
        ("none/sweep.db", "there is no folder"),
        (".", "is a folder"),
        ("text.db", "not a database"),
        ("foreign://host/base", "foreign"),
        ("://", "not a database URL"),
    ],
)
def test_a_storage_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.db").write_text("no database\n" * 100)
    with pytest.raises(PartitionError, match=sentence):
        open_storage(storage_url(storage))


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE studies (name TEXT)")
    connection.close()
    with pytest.raises(PartitionError, match=r"other\.db"):
        run(replace(sweep_in(tmp_path), url=storage_url(str(path))), 1, 0, ignore)
