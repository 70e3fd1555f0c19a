"""NSGA-II and annealing, on problems whose answers are known."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from ga import annealing, nsga
from ga.objectives import OVER_LIMIT, Objectives, Preference
from ga.operators import move_run
from partition.devices import Device
from partition.strategies.base import Problem
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import MB, equal

FREE = np.full(20, -1)


def two_goals(population: np.ndarray) -> np.ndarray:
    """Ones on the left against ones on the right: every split of 20 genes is a compromise."""
    boundaries = (population[:, 1:] != population[:, :-1]).sum(axis=1)
    ones = population.sum(axis=1)
    columns = [1 + ones, 21 - ones, 1 + boundaries, np.ones(len(population))]
    return np.column_stack(columns).astype(float)


def test_nsga_spreads_along_the_front() -> None:
    start = np.zeros((1, 20), dtype=np.int16)
    found = nsga.evolve(
        np.random.default_rng(0),
        start,
        FREE,
        2,
        two_goals,
        nsga.Parameters(40, 60),
        lambda *_: None,
    )
    objectives = two_goals(found)
    smooth = objectives[objectives[:, 2] <= 2]
    assert len(found) == 40
    assert len(np.unique(smooth[:, 0])) >= 15  # of the 21 splits with at most one boundary


def test_nsga_reports_each_generation() -> None:
    done: list[int] = []
    start = np.zeros((3, 20), dtype=np.int16)
    parameters = nsga.Parameters(8, 5)
    nsga.evolve(
        np.random.default_rng(0), start, FREE, 2, two_goals, parameters, lambda g, _: done.append(g)
    )
    assert done == [1, 2, 3, 4, 5]


def mismatches(population: np.ndarray) -> np.ndarray:
    """Genes that differ from 0 0 … 0 1 1 … 1."""
    return (population != (np.arange(20) >= 10)).sum(axis=1).astype(float)


def test_annealing_finds_a_boundary() -> None:
    start = np.zeros((8, 20), dtype=np.int16)
    steps = annealing.Schedule(300, start=0.5)
    move = partial(move_run, pinned=FREE, devices=2)
    found = annealing.anneal(
        np.random.default_rng(0), start, move, mismatches, steps, lambda _: None
    )
    assert mismatches(found).min() == 0


def test_annealing_never_returns_worse_than_it_was_given_and_moves_no_pin() -> None:
    rng = np.random.default_rng(0)
    pinned = np.where(np.arange(20) % 3 == 0, 0, -1)
    start = np.where(pinned >= 0, 0, rng.integers(0, 2, (8, 20))).astype(np.int16)
    hot = annealing.Schedule(30, start=100.0)
    move = partial(move_run, pinned=pinned, devices=2)
    found = annealing.anneal(rng, start, move, mismatches, hot, lambda _: None)
    assert (mismatches(found) <= mismatches(start)).all()
    assert (found[:, pinned >= 0] == 0).all()


def test_exceeding_a_limit_is_worse_than_anything_within_it() -> None:
    network = chain(10**9, 10**9, weights=[5 * MB, 5 * MB])
    problem = Problem(network, equal(2, 84 * MB))
    together, spread = Objectives(problem)(problem.costs.evaluate(np.array([[0, 0], [0, 1]])))
    assert (together > OVER_LIMIT / 2 * spread).all()


def test_weights_count_by_the_memory_that_a_device_has() -> None:
    network = chain(1, 1, weights=[MB, MB])
    small, large = Device("small", 100 * MB), Device("large", 1000 * MB)
    problem = Problem(network, (small, large))
    onto = Objectives(problem)(problem.costs.evaluate(np.array([[0, 0], [1, 1]])))
    assert onto[1, 1] < 0.2 * onto[0, 1]


def test_among_equal_periods_the_fairer_work_wins() -> None:
    network = chain(10**9, 10**9)
    shared = tuple(Device(name, host="box", host_cores=1, wire_s_per_message=0) for name in "ab")
    problem = Problem(network, shared)
    costs = problem.costs.evaluate(np.array([[0, 0], [0, 1]]))
    assert costs.period_s[0] == pytest.approx(costs.period_s[1], rel=0.01)
    alone, spread = Objectives(problem)(costs)[:, 0]
    assert spread < 0.9 * alone


def test_a_preference_is_an_exchange_rate() -> None:
    preference = Preference(time=1.0, memory=0.5, traffic=0.0, phases=0.0)
    same = preference.score(np.array([[1.0, 1.0, 1.0, 1.0], [2.0, 0.25, 9.0, 9.0]]))
    assert same[0] == pytest.approx(same[1])


def test_residual_networks_have_their_weights_at_the_end() -> None:
    """What makes contiguous cuts unfair; the tests of `vertical` rest on it."""
    problem = Problem(residual(16), equal(2))
    halves = (np.arange(len(problem.network.layers)) >= len(problem.network.layers) // 2)[None]
    weights = problem.costs.evaluate(halves.astype(int)).weight_bytes[0]
    assert weights[1] > 4 * weights[0]
