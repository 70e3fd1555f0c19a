"""Random moves, the paper's mutation, and longest processing time first."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ga import operators
from ga.individuals import PaperIndividual, population_of
from partition.strategies.balancing import longest_first

seeds = st.integers(0, 2**32 - 1)


@st.composite
def populations(draw: st.DrawFn) -> tuple[np.random.Generator, np.ndarray, np.ndarray, int]:
    """A generator, a population that respects pins, the pins (−1: free), the number of devices."""
    devices, genes = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    pinned = np.array(draw(st.lists(st.integers(-1, devices - 1), min_size=genes, max_size=genes)))
    rng = np.random.default_rng(draw(seeds))
    individuals = 2 * draw(st.integers(1, 8))
    return rng, operators.random_population(rng, individuals, pinned, devices), pinned, devices


def respects(population: np.ndarray, pinned: np.ndarray, devices: int) -> bool:
    kept = (population[:, pinned >= 0] == pinned[pinned >= 0]).all()
    return bool(kept and (population >= 0).all() and (population < devices).all())


@given(populations())
@settings(max_examples=50)
def test_no_operator_moves_a_pinned_gene_or_invents_a_device(
    case: tuple[np.random.Generator, np.ndarray, np.ndarray, int],
) -> None:
    rng, population, pinned, devices = case
    before = population.copy()
    moved = operators.move_run(rng, population, pinned, devices)
    mutated = population.copy()
    for row in mutated:
        operators.change_one_gene(rng, row, np.flatnonzero(pinned < 0), devices)
    assert respects(moved, pinned, devices)
    assert respects(mutated, pinned, devices)
    assert (population == before).all()


def test_the_papers_mutation_changes_one_gene_in_place() -> None:
    individual, rng = [0] * 30, np.random.default_rng(0)
    (changed,) = operators.change_one_gene(rng, individual, np.array([3, 5]), 100)
    assert changed is individual
    (gene,) = np.flatnonzero(individual)
    assert gene in (3, 5)


def test_a_run_moves_as_a_whole_and_something_may_come_back() -> None:
    population = np.repeat(np.array([[0] * 10 + [1] * 10], dtype=np.int16), 500, axis=0)
    pinned = np.full(20, -1)
    moved = operators.move_run(np.random.default_rng(0), population, pinned, 2)
    changed = moved != population
    assert changed.any(axis=1).mean() > 0.6
    assert changed.sum(axis=1).mean() > 1.5
    shifted = changed[:, 9] ^ changed[:, 10]
    assert shifted.mean() > 0.4


def test_longest_first_is_what_graham_described() -> None:
    sizes = np.array([[3.0], [7.0], [5.0], [6.0], [4.0]]).repeat(2, axis=1)
    assigned = longest_first(np.random.default_rng(0), 1, sizes, np.full(5, -1))[0]
    loads = [sizes[assigned == device, 0].sum() for device in (0, 1)]
    # 7 | 6, then 5 joins 6, 4 joins 7, and 3 joins whichever is first of 11 and 11.
    assert sorted(loads) == [11.0, 14.0]


@given(seeds, st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 4))
@settings(max_examples=50)
def test_longest_first_keeps_grahams_bound(seed: int, sizes: list[int], devices: int) -> None:
    columns = np.array(sizes, dtype=float)[:, None].repeat(devices, axis=1)
    rng = np.random.default_rng(seed)
    assigned = longest_first(rng, 1, columns, np.full(len(sizes), -1))[0]
    heaviest = max(columns[assigned == device, 0].sum() for device in range(devices))
    # Against a lower bound of the optimum, list scheduling's own bound holds.
    assert heaviest <= sum(sizes) / devices + max(sizes) * (1 - 1 / devices) + 1e-9


def test_longest_first_loads_pinned_genes_first() -> None:
    sizes = np.array([[10.0], [6.0], [5.0]]).repeat(2, axis=1)
    pinned = np.array([-1, 0, 0])
    assigned = longest_first(np.random.default_rng(0), 4, sizes, pinned, spread=0.5)
    assert (assigned == [1, 0, 0]).all()


def with_fitness(values: list[tuple[float, float]]) -> list[Any]:
    individuals = population_of(PaperIndividual, np.arange(len(values), dtype=np.int16)[:, None])
    for individual, value in zip(individuals, values, strict=True):
        individual.fitness.values = value
    return individuals


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=9), seeds)
def test_a_long_tournament_is_won_by_what_is_best_feasible_first(
    values: list[tuple[float, float]], seed: int
) -> None:
    chosen = operators.tournaments(np.random.default_rng(seed), with_fitness(values), 300)
    assert len(chosen) == len(values)
    assert {each.fitness.values for each in chosen} == {min(values)}


def test_all_of_several_equally_good_individuals_win_tournaments() -> None:
    individuals = with_fitness([(0, 1)] * 50 + [(0, 2)] * 50)
    winners = operators.tournaments(np.random.default_rng(0), individuals, 3)
    better = {each[0] for each in winners if each.fitness.values == (0, 1)}
    assert 30 <= len(better) <= 50
    assert max(better) >= 45
    assert min(better) <= 5
    assert 70 <= sum(each.fitness.values == (0, 1) for each in winners) <= 98  # 1 - 1/8 of 100
