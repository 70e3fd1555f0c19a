"""Genetic operators on whole populations."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ga import operators
from partition.strategies.longest_first import longest_first

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
    free = np.flatnonzero(pinned < 0)
    for changed in (
        operators.two_point_crossover(rng, population, 1.0),
        operators.single_gene_mutation(rng, population, 1.0, free, devices),
        operators.move_run(rng, population, pinned, devices),
    ):
        assert respects(changed, pinned, devices)
        assert changed.shape == population.shape
    assert (population == before).all()


@given(populations())
@settings(max_examples=50)
def test_crossover_loses_no_gene_of_a_pair(
    case: tuple[np.random.Generator, np.ndarray, np.ndarray, int],
) -> None:
    rng, population, _, _ = case
    children = operators.two_point_crossover(rng, population, 1.0)
    for k in range(0, len(population), 2):
        assert (
            np.sort(children[k : k + 2], axis=0) == np.sort(population[k : k + 2], axis=0)
        ).all()


def test_crossover_exchanges_one_run_of_genes() -> None:
    parents = np.repeat(np.array([[0], [1]], dtype=np.int16), 50, axis=1)
    child = operators.two_point_crossover(np.random.default_rng(3), parents, 1.0)[0]
    assert (child[1:] != child[:-1]).sum() in {1, 2}


def test_mutation_changes_one_gene_of_about_as_many_rows_as_it_should() -> None:
    population = np.zeros((10_000, 30), dtype=np.int16)
    mutated = operators.single_gene_mutation(
        np.random.default_rng(0), population, 0.05, np.arange(30), 100
    )
    changed = (mutated != population).sum(axis=1)
    assert changed.max() == 1
    assert 400 < changed.sum() < 600


def test_a_tournament_prefers_the_fit() -> None:
    fitness = np.arange(100, dtype=float)
    winners = operators.tournament(np.random.default_rng(0), fitness, 1000, 3)
    assert 20 < winners.mean() < 30  # a quarter of the way: the least of three of 0…99


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
