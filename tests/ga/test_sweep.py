"""Sweeps: studies that are kept, shared and refused, and searches that cost the same."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga.sweep.spaces import SPACES, Space
from ga.sweep.study import Result, Sweep, open_storage, run, shown, storage_url
from ga.vertical import Effort
from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import equal

BUDGET = 0.01
SMALL = Problem(residual(2), equal(3))


def sweep_in(folder: Path, problem: Problem = SMALL, space: str = "vertical-paper") -> Sweep:
    url = storage_url(str(folder / "sweep.db"))
    return Sweep(SPACES[space], problem, "digest", url, "study", repeats=1, budget=BUDGET)


def forgetful(problem: Problem = SMALL, space: str = "vertical-paper") -> Sweep:
    """A study in memory, for what one run shows."""
    return replace(sweep_in(Path(), problem, space), url="sqlite:///:memory:")


def ignore(_done: int, _part: float, _best: float | None) -> None:
    """For those who do not watch."""


@pytest.mark.slow
@pytest.mark.parametrize("space", SPACES)
def test_a_sweep_begins_with_the_usual_parameters_and_ends_no_worse(space: str) -> None:
    heard: list[int] = []
    sweep = forgetful(space=space)
    result = run(sweep, 7, 0, lambda done, _part, _best: heard.append(done))
    assert result.trials[0].parameters == sweep.space.usual(SMALL, BUDGET)
    assert result.usual == result.trials[0].value
    assert result.gain is not None
    assert result.gain >= 0
    assert len(result.trials) == heard[-1] == 7
    assert heard == sorted(heard)
    assert result.count("complete") + result.count("pruned") == 7
    values = [trial.value for trial in result.ranked if trial.value is not None]
    assert values == sorted(values)
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
        sweep = replace(forgetful(), space=Hopeless())
        return [trial.parameters["x"] for trial in run(sweep, 2, seed, ignore).trials]

    assert choices(7) == choices(7) != choices(8)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (replace(SMALL, seed=1), "seed"),
        (replace(SMALL, devices=equal(3, 10**9)), "devices"),
        (replace(SMALL, objective="memory"), "objective"),
        (replace(SMALL, pins={SMALL.network.layers[0].name: "d0"}), "pins"),
    ],
)
def test_values_depend_on_the_problem(changed: Problem, named: str) -> None:
    usual, other = forgetful().conditions(), forgetful(changed).conditions()
    assert [key for key, value in usual.items() if other[key] != value] == [named]


def test_measured_times_make_another_study(tmp_path: Path) -> None:
    measured = replace(SMALL, layer_s=SMALL.costs.layer_s * 2)
    run(sweep_in(tmp_path, measured), 1, 0, ignore)
    run(sweep_in(tmp_path, measured), 1, 0, ignore)
    with pytest.raises(PartitionError, match="not the same times, so that"):
        run(sweep_in(tmp_path), 1, 0, ignore)


def test_a_study_for_something_else_is_refused(tmp_path: Path) -> None:
    sweep = sweep_in(tmp_path)
    run(sweep, 1, 0, ignore)
    with pytest.raises(PartitionError, match=r"not the same model, .* --study NAME"):
        run(replace(sweep, model_digest="another"), 1, 0, ignore)


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
    """Searches of which each is worse than the one before."""

    name = "hopeless"
    value_name = "value"

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.searched = 0
        self._interrupt_at = interrupt_at

    def usual(self, problem: Problem, budget: float) -> dict[str, float]:
        return {"x": 0.5}

    def suggest(self, trial: optuna.Trial) -> dict[str, float]:
        return {"x": trial.suggest_float("x", 0.0, 1.0)}

    def settings(self, problem: Problem, parameters: object, budget: float) -> dict[str, float]:
        return {}

    def search(self, problem: Problem, parameters: object, budget: float, watch: object) -> float:
        assert callable(watch)
        if self.searched == self._interrupt_at:
            raise KeyboardInterrupt
        self.searched += 1
        for step in range(101):
            watch(step / 100, float(self.searched))
        return float(self.searched)

    def gain(self, usual: float, best: float) -> float:
        return usual - best


def run_with(space: Space, trials: int, repeats: int = 1) -> Result:
    return run(replace(forgetful(), space=space, repeats=repeats), trials, 0, ignore)


def test_hopeless_trials_are_given_up_after_the_first_few() -> None:
    result = run_with(Hopeless(), 7)
    assert [trial.state for trial in result.trials] == ["complete"] * 5 + ["pruned"] * 2
    assert result.usual == 1.0
    assert result.gain == 0.0


def test_the_value_of_a_trial_is_the_mean_of_its_searches() -> None:
    assert run_with(Hopeless(), 1, repeats=3).trials[0].value == 2.0


def test_what_is_finished_before_ctrl_c_is_kept() -> None:
    result = run_with(Hopeless(interrupt_at=2), 9)
    assert result.interrupted
    assert [trial.state for trial in result.trials] == ["complete", "complete", "fail"]
    assert [trial.value for trial in result.ranked] == [1.0, 2.0]


def add_trials(folder: str, trials: int) -> None:
    run(sweep_in(Path(folder)), trials, None, ignore)


@pytest.mark.slow
def test_two_processes_share_a_study_that_neither_has_begun(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_trials, args=(str(tmp_path), 4)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    assert [worker.exitcode for worker in workers] == [0, 0]
    result = run(sweep_in(tmp_path), 1, 0, ignore)
    assert result.before == 8
    assert [trial.number for trial in result.trials] == list(range(9))
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

    def states(found: object) -> float:
        assert isinstance(found, dict)
        evolution = found["individuals"] * found["generations"]
        return float(evolution + found["chains"] * found["steps"])

    assert abs(states(settings) - states(usual)) <= chains + 4 * fours + Effort().chains


def test_the_usual_parameters_are_those_of_the_strategy() -> None:
    space, effort = SPACES["vertical"], Effort()
    settings = space.settings(SMALL, space.usual(SMALL, 1.0), 1.0)
    assert settings["individuals"] == effort.nsga.individuals
    assert settings["generations"] == effort.nsga.generations
    assert (settings["chains"], settings["heat"]) == (effort.chains, effort.heat)
    paper = SPACES["vertical-paper"]
    assert paper.settings(SMALL, paper.usual(SMALL, 1.0), 1.0)["generations"] == 100


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
        ("://", "no database URL"),
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
