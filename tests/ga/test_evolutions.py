"""What users of DEAP expect: their own operators, checkpoints, hypervolume in each generation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga import nsga
from ga.paper import Evolution, PaperParameters, VerticalPaper, evolve
from ga.vertical import Effort, Vertical
from partition.errors import PartitionError
from partition.pricing.memory_budget import START_UP_BYTES
from partition.strategies.base import Problem, SearchProgress, Solution
from tests.partition.networks import residual
from tests.partition.strategy_contract import equal

PROBLEM = Problem(residual(8), equal(5))


def run(
    generations: int, checkpoint: str | Path | None = None, problem: Problem = PROBLEM
) -> Evolution:
    parameters = PaperParameters(60, generations, stop_when_optimal=False)
    return evolve(problem, parameters, lambda *_: None, checkpoint=checkpoint)


def same(one: Evolution, other: Evolution) -> bool:
    return (one.best.tolist(), one.phi, one.logbook) == (
        other.best.tolist(),
        other.phi,
        other.logbook,
    )


@settings(max_examples=12)
@given(st.integers(0, 24), st.integers(0, 24))
def test_an_evolution_that_continues_is_the_one_that_never_stopped(
    tmp_path_factory: pytest.TempPathFactory, first: int, more: int
) -> None:
    checkpoint = tmp_path_factory.mktemp("evolution") / "kept.npz"
    stopped = run(first, checkpoint)
    assert same(stopped, run(first))
    assert same(run(first + more, checkpoint), run(first + more))


def test_what_is_interrupted_continues_from_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "kept.npz"

    def interrupt(done: int, *_: object) -> None:
        if done == 17:
            raise KeyboardInterrupt

    parameters = PaperParameters(60, 30, stop_when_optimal=False)
    with pytest.raises(KeyboardInterrupt):
        evolve(PROBLEM, parameters, interrupt, checkpoint=checkpoint)
    seen: list[int] = []
    found = evolve(PROBLEM, parameters, lambda done, *_: seen.append(done), checkpoint=checkpoint)
    assert seen == [*range(10, 31)]
    assert same(found, run(30))


def test_a_checkpoint_is_named_by_a_text_too_and_its_folder_must_exist(tmp_path: Path) -> None:
    run(1, str(tmp_path / "kept.npz"))
    assert (tmp_path / "kept.npz").exists()
    with pytest.raises(PartitionError, match=r"kept\.npz: there is no folder"):
        run(1, tmp_path / "missing" / "kept.npz")


def test_another_search_refuses_a_checkpoint_and_says_so(tmp_path: Path) -> None:
    checkpoint = tmp_path / "kept.npz"
    run(3, checkpoint)
    with pytest.raises(PartitionError, match=r"kept\.npz: is a checkpoint of another search"):
        run(3, checkpoint, Problem(residual(8), equal(4)))
    for damage in (b"", b"nothing", checkpoint.read_bytes()[:200]):
        checkpoint.write_bytes(damage)
        with pytest.raises(PartitionError, match=r"kept\.npz: is not a checkpoint .*; remove it"):
            run(3, checkpoint)


def all_to_the_first(individual: Any) -> tuple[Any]:
    individual[:] = type(individual)(np.zeros(len(individual), dtype=np.int16).tobytes())
    return (individual,)


@pytest.mark.parametrize("strategy", [VerticalPaper, Vertical])
def test_an_operator_that_a_user_registers_replaces_ours_and_cannot_move_pins(
    strategy: type[Any],
) -> None:
    called = []

    def mutate(individual: Any) -> tuple[Any]:
        called.append(len(individual))
        return all_to_the_first(individual)

    pinned = PROBLEM.network.layers[3].name
    problem = Problem(PROBLEM.network, PROBLEM.devices, {pinned: "d4"})
    quick: Any = (
        PaperParameters(40, 5)
        if strategy is VerticalPaper
        else Effort(nsga.Parameters(16, 5), chains=8, most_steps=10, least_steps=5)
    )
    key = "parameters" if strategy is VerticalPaper else "effort"
    solution = strategy(
        **{key: quick}, register=lambda toolbox: toolbox.register("mutate", mutate)
    ).solve(problem)
    assert called
    assert solution.assignment[pinned] == "d4"


def front(generations: int, checkpoint: Path | None = None, problem: Problem = PROBLEM) -> Solution:
    effort = Effort(nsga.Parameters(16, generations), chains=8, most_steps=10, least_steps=5)
    return Vertical(effort=effort, checkpoint=checkpoint).solve(problem)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 24), st.integers(0, 24))
def test_an_nsga_ii_that_continues_is_the_one_that_never_stopped(
    tmp_path_factory: pytest.TempPathFactory, first: int, more: int
) -> None:
    checkpoint = tmp_path_factory.mktemp("evolution") / "kept.npz"
    assert front(first, checkpoint) == front(first)
    assert front(first + more, checkpoint) == front(first + more)


def test_an_interrupted_nsga_ii_continues_from_the_last_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "kept.npz"

    def interrupt(progress: SearchProgress) -> None:
        if progress.done == 17:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        front(30, checkpoint, replace(PROBLEM, on_progress=interrupt))
    seen: list[int] = []
    watched = replace(PROBLEM, on_progress=lambda progress: seen.append(progress.done))
    assert front(30, checkpoint, watched) == front(30)
    assert seen[:20] == [*range(11, 31)]
    with pytest.raises(PartitionError, match=r"kept\.npz: is a checkpoint of another search"):
        front(30, checkpoint, replace(PROBLEM, seed=PROBLEM.seed + 1))


def test_without_spare_frames_nsga_ii_begins_again_and_keeps_nothing(tmp_path: Path) -> None:
    tight = tuple(replace(device, memory_bytes=START_UP_BYTES) for device in PROBLEM.devices)
    weights = {name: replace(w, shape=(10**8,)) for name, w in PROBLEM.network.weights.items()}
    network = replace(PROBLEM.network, weights=weights)
    problem = replace(PROBLEM, network=network, devices=tight)
    found = front(12, tmp_path / "kept.npz", problem)
    assert "no solution was found that fits" in found.explanation
    assert found == front(12, None, problem)


def test_the_hypervolume_of_the_front_never_shrinks_much_and_grows() -> None:
    effort = Effort(nsga.Parameters(32, 20), chains=8, most_steps=10, least_steps=5)
    rows = Vertical(effort=effort).solve(PROBLEM).generations
    volumes = [row["hypervolume"] for row in rows]
    assert len(volumes) == 20
    assert all(0 <= volume <= 1 for volume in volumes)
    assert volumes[-1] > volumes[0] > 0
