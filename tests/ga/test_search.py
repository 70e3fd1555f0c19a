"""NSGA-II and annealing, on problems whose answers are known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga import local_search, nsga
from ga.individuals import Individual, population_of
from ga.local_search import descend
from ga.nsga import front_of
from ga.objectives import Objectives, Preference, Priced
from ga.operators import move_run, relieve
from partition.devices import Device
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import Problem
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import MB, equal

FREE = np.full(20, -1)


def two_goals(population: np.ndarray) -> np.ndarray:
    """Ones on the left against ones on the right: every split of 20 genes is a compromise."""
    boundaries = (population[:, 1:] != population[:, :-1]).sum(axis=1)
    ones = population.sum(axis=1)
    columns = [0 * ones, 1 + ones, 21 - ones, 1 + boundaries]
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
    values = two_goals(found.population)
    smooth = values[values[:, 3] <= 2]
    assert len(found.population) == 40
    assert len(np.unique(smooth[:, 1])) >= 15  # of the 21 splits with at most one boundary


def test_nsga_reports_each_generation() -> None:
    done: list[int] = []
    start = np.zeros((3, 20), dtype=np.int16)
    parameters = nsga.Parameters(8, 5)
    found = nsga.evolve(
        np.random.default_rng(0), start, FREE, 2, two_goals, parameters, lambda g, _: done.append(g)
    )
    assert done == [1, 2, 3, 4, 5]
    assert [row["generation"] for row in found.generations] == done
    assert all(row["least_excess_bytes"] == 0 for row in found.generations)
    assert found.generations[-1]["least_period_s"] == two_goals(found.population)[:, 1].min()


def test_nsga_goes_for_what_fits_before_anything_else() -> None:
    def with_limit(population: np.ndarray) -> np.ndarray:
        values = two_goals(population)
        values[:, 0] = np.maximum(0, 15 - population.sum(axis=1))  # at least 15 ones fit
        return values

    start, parameters = np.zeros((1, 20), dtype=np.int16), nsga.Parameters(40, 40)
    rng = np.random.default_rng(0)
    found = nsga.evolve(rng, start, FREE, 2, with_limit, parameters, lambda *_: None)
    assert (found.population.sum(axis=1) >= 15).all()
    assert found.population.sum(axis=1).min() == 15


def mismatches(population: np.ndarray) -> np.ndarray:
    """Genes that differ from 0 0 … 0 1 1 … 1."""
    return (population != (np.arange(20) >= 10)).sum(axis=1).astype(float)


def test_annealing_finds_a_boundary() -> None:
    start = np.zeros((8, 20), dtype=np.int16)
    steps = local_search.CoolingSchedule(300, start=0.5)
    move = partial(move_run, pinned=FREE, devices=2)
    found = local_search.anneal(
        np.random.default_rng(0), start, move, mismatches, steps, lambda _: None
    )
    assert mismatches(found).min() == 0


def test_annealing_never_returns_worse_than_it_was_given_and_moves_no_pin() -> None:
    rng = np.random.default_rng(0)
    pinned = np.where(np.arange(20) % 3 == 0, 0, -1)
    start = np.where(pinned >= 0, 0, rng.integers(0, 2, (8, 20))).astype(np.int16)
    hot = local_search.CoolingSchedule(30, start=100.0)
    move = partial(move_run, pinned=pinned, devices=2)
    found = local_search.anneal(rng, start, move, mismatches, hot, lambda _: None)
    assert (mismatches(found) <= mismatches(start)).all()
    assert (found[:, pinned >= 0] == 0).all()


def priced(problem: Problem, *assignments: list[int]) -> tuple[Objectives, Priced]:
    objectives = Objectives(problem, problem.costs, layer_beta_bytes(problem.network))
    return objectives, objectives.price(np.array(assignments))


def test_exceeding_a_limit_is_worse_than_anything_within_it() -> None:
    network = chain(10**9, 10**9, weights=[5 * MB, 5 * MB])
    problem = Problem(network, equal(2, 75 * MB))
    objectives, found = priced(problem, [0, 0], [0, 1])
    together, spread = population_of(Individual, np.zeros((2, 1), np.int16))
    together.fitness.values, spread.fitness.values = found.fitness.tolist()
    assert spread.fitness.dominates(together.fitness)
    score = objectives.score(found, Preference(), smooth=False)
    assert score[0] > score[1] + 10


def test_weights_count_by_the_memory_that_a_device_has() -> None:
    network = chain(1, 1, weights=[MB, MB])
    small, large = Device("small", 100 * MB), Device("large", 1000 * MB)
    _, found = priced(Problem(network, (small, large)), [0, 0], [1, 1])
    assert found.fitness[1, 2] < 0.2 * found.fitness[0, 2]


def test_for_the_objective_memory_equation_2_counts() -> None:
    network = chain(1, 1, weights=[MB, MB])
    _, found = priced(Problem(network, equal(2), objective="memory"), [0, 0], [0, 1])
    beta = layer_beta_bytes(network)
    np.testing.assert_array_equal(found.memory, [[beta.sum(), 0], beta])


@pytest.mark.parametrize("smooth", [False, True])
def test_among_equal_periods_the_fairer_work_wins(smooth: bool) -> None:
    network = chain(10**9, 10**9)
    shared = tuple(Device(name, host="box", host_cores=1, wire_s_per_message=0) for name in "ab")
    objectives, found = priced(Problem(network, shared), [0, 0], [0, 1])
    period = found.costs.period_s
    assert period[0] == pytest.approx(period[1], rel=0.01)
    alone, spread = objectives.score(found, Preference(), smooth=smooth)
    assert spread < alone - 0.1


def test_a_preference_is_an_exchange_rate() -> None:
    """Half the memory for a time longer by 2 to the power of a half is an even trade."""
    network = chain(10**9, 10**9, weights=[MB, MB])
    devices = (Device("a", firing_s=0.0), Device("b", firing_s=0.0))
    objectives, found = priced(Problem(network, devices), [0, 0], [0, 0])
    costs = replace(
        found.costs,
        period_s=np.array([1.0, 2**0.5]),
        compute_s=np.array([[1.0, 0.0], [2**0.5, 0.0]]),
    )
    memory = np.array([[1.0, 0.0], [0.5, 0.5]])
    traded = replace(found, costs=costs, memory=memory)
    rates = Preference(time=1.0, memory=0.5, traffic=0.0)
    same = objectives.score(traded, rates, smooth=False)
    assert same[0] == pytest.approx(same[1])


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_relieving_takes_from_the_fullest_and_leaves_pins(seed: int, devices: int) -> None:
    rng = np.random.default_rng(seed)
    population = rng.integers(0, devices, (6, 12)).astype(np.int16)
    pinned = np.where(rng.random(12) < 0.3, 0, -1)
    population[:, pinned >= 0] = 0
    sizes = np.repeat(rng.random((1, 12, 1)) + 0.1, devices, axis=2)
    moved = relieve(rng, population, pinned, sizes)
    assert (moved[:, pinned >= 0] == 0).all()
    for before, after in zip(population, moved, strict=True):
        fullest = np.bincount(before, sizes[0, :, 0], minlength=devices).argmax()
        changed = np.flatnonzero(before != after)
        assert len(changed) <= 2
        assert all(fullest in (before[gene], after[gene]) for gene in changed)


def test_descent_ends_where_no_move_or_exchange_is_better() -> None:
    sizes = np.repeat(np.array([5.0, 4.0, 3.0, 3.0, 3.0])[None, :, None], 2, axis=2)

    def fullest(population: np.ndarray) -> np.ndarray:
        ones = (population * sizes[0, :, 0]).sum(axis=1)
        return np.maximum(ones, 18.0 - ones)

    start = np.zeros(5, dtype=np.int16)
    rng = np.random.default_rng(0)
    found = descend(rng, start, np.full(5, -1), sizes, fullest, 20, 4000)
    assert fullest(found[None])[0] == 9.0  # 5 + 4 on one side, 3 + 3 + 3 on the other
    pinned = np.array([0, -1, -1, -1, -1])
    held = descend(rng, start, pinned, sizes, fullest, 20, 4000)
    assert held[0] == 0


@given(st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=12))
def test_a_front_keeps_one_of_everything_that_nothing_dominates(points: list[list[int]]) -> None:
    problem = Problem(chain(1, 1), equal(len(points)))
    rows = np.arange(len(points))[:, None].repeat(2, axis=1)
    costs = problem.costs.evaluate(rows)
    found = front_of(problem, rows, Priced(costs, np.array(points, float), costs.weight_bytes))
    kept = [(each.period_s, each.memory_bytes, each.wire_bytes) for each in found]
    least = min(excess for excess, *_ in points)
    fit = {tuple(map(float, objectives)) for excess, *objectives in points if excess == least}
    assert set(kept) == {
        one
        for one in fit
        if not any(o != one and all(a <= b for a, b in zip(o, one, strict=True)) for o in fit)
    }
    assert len(kept) == len(set(kept))
    assert kept == sorted(kept)


def test_residual_networks_have_their_weights_at_the_end() -> None:
    """What makes contiguous cuts unfair; the tests of `vertical` rest on it."""
    problem = Problem(residual(16), equal(2))
    halves = (np.arange(len(problem.network.layers)) >= len(problem.network.layers) // 2)[None]
    weights = problem.costs.evaluate(halves.astype(int)).weight_bytes[0]
    assert weights[1] > 4 * weights[0]
