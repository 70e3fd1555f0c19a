"""The paper's genetic algorithm."""

from __future__ import annotations

import itertools

import numpy as np

from ga.paper import SEEDED, Evolution, PaperParameters, evolve
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes, phi
from partition.strategies.balancing import longest_first
from partition.strategies.base import Problem
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import equal

SMALL = PaperParameters(individuals=200, generations=30, stop_when_optimal=False)


def run(problem: Problem, parameters: PaperParameters) -> tuple[Evolution, list[float]]:
    """The evolution and φ of the best after each generation."""
    seen: list[float] = []
    evolution = evolve(problem, parameters, lambda _, __, least: seen.append(least))
    return evolution, seen


def test_the_papers_parameters_are_the_defaults() -> None:
    defaults = PaperParameters()
    assert (defaults.individuals, defaults.generations, defaults.mutation) == (5000, 100, 0.05)
    assert defaults.seeded == 0


def test_the_paper_begins_at_random_and_the_seeded_variant_with_longest_first() -> None:
    """On a network of many layers, longest-first is better than the best of random ones."""
    problem = Problem(residual(16), equal(5))
    sizes = np.repeat(layer_beta_bytes(problem.network)[:, None], 5, axis=1)
    by_size = longest_first(np.random.default_rng(0), 1, sizes, problem.pinned)
    seed_phi = phi(beta_bytes(layer_beta_bytes(problem.network), by_size, 5))[0]
    _, unseeded = run(problem, PaperParameters(200, 30))
    _, seeded = run(problem, PaperParameters(200, 5, seeded=SEEDED))
    assert seeded[0] <= seed_phi < unseeded[0]
    assert unseeded[-1] < unseeded[0]


def test_it_finds_the_optimum_of_a_small_network() -> None:
    network = chain(*[1] * 8, weights=[17, 291, 43, 1009, 80, 555, 760, 31])
    problem = Problem(network, equal(3))
    everything = np.array(list(itertools.product(range(3), repeat=8)))
    least = phi(beta_bytes(layer_beta_bytes(network), everything, 3)).min()
    evolution, _ = run(problem, SMALL)
    assert evolution.phi == least


def test_the_best_never_gets_lost_and_the_search_gains_over_random_individuals() -> None:
    evolution, seen = run(Problem(residual(8), equal(5)), SMALL)
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == SMALL.generations + 1
    assert evolution.phi < 0.5 * seen[0]
    seeded, _ = run(Problem(residual(8), equal(5)), PaperParameters(200, 30, seeded=SEEDED))
    assert seeded.phi <= evolution.phi


def test_deaps_logbook_has_each_generation() -> None:
    evolution, seen = run(Problem(residual(2), equal(2)), SMALL)
    rows = evolution.logbook
    assert [row["generation"] for row in rows] == list(range(SMALL.generations + 1))
    assert [row["least"] for row in rows] == seen
    assert rows[0]["evaluations"] == SMALL.individuals
    assert all(row["evaluations"] < SMALL.individuals for row in rows[1:])
    assert rows[-1]["mean"] >= evolution.phi


def test_it_stops_early_only_at_a_proven_optimum() -> None:
    network = chain(*[1] * 6, weights=[500] * 6)
    evolution, _ = run(Problem(network, equal(3)), PaperParameters(100, 50))
    assert evolution.is_optimal
    assert evolution.generations == 0
    whole, _ = run(Problem(network, equal(3)), PaperParameters(100, 50, stop_when_optimal=False))
    assert whole.generations == 50


def test_the_reported_phi_is_that_of_the_reported_individual() -> None:
    network = residual(4)
    evolution, _ = run(Problem(network, equal(3)), SMALL)
    beta = beta_bytes(layer_beta_bytes(network), evolution.best[None], 3)
    assert phi(beta)[0] == evolution.phi >= evolution.phi_bound
