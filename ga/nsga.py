"""NSGA-II over several objectives at once, with DEAP.

Parents are selected by `selTournamentDCD` (rank, then crowding), children are made by two-point
crossover and by moving runs of genes (`ga.operators`), and `selNSGA2` keeps the better half of
parents and children. Children are made and priced as one array; only the selection handles
individuals one by one.

Source: K. Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE
Transactions on Evolutionary Computation, 2002.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ga import operators
from ga.operators import Population

Evaluate = Callable[[Population], NDArray[np.float64]]
"""[individuals, genes] → objectives [individuals, 3], all to be minimised."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """`individuals` must be a multiple of four (DEAP's tournament pairs them so)."""

    individuals: int = 64
    generations: int = 50
    crossover: float = 0.5


def evolve(
    rng: np.random.Generator,
    population: Population,
    pinned: NDArray[np.integer],
    devices: int,
    evaluate: Evaluate,
    parameters: Parameters,
    on_generation: Callable[[int, NDArray[np.float64]], None],
) -> Population:
    """The last generation's population; `on_generation` gets (generations done, objectives).

    `population` is the first, of any size ≥ 1; it is filled up or cut to `individuals`.
    """
    from deap import base, tools  # noqa: PLC0415 (takes 0.1 s to import)

    toolbox: Any = base.Toolbox()
    toolbox.register("select", tools.selNSGA2, k=parameters.individuals, nd="standard")
    toolbox.register("mate", operators.two_point_crossover, rng, probability=parameters.crossover)
    toolbox.register("mutate", operators.move_run, rng, pinned=pinned, devices=devices)
    wrap = _individual_type()

    def individuals(genes: Population) -> list[Any]:
        return [wrap(row, values) for row, values in zip(genes, evaluate(genes), strict=True)]

    fill = rng.integers(0, len(population), max(parameters.individuals - len(population), 0))
    mutants = toolbox.mutate(toolbox.mutate(population[fill])) if len(fill) else population[:0]
    parents = toolbox.select(individuals(np.concatenate([population, mutants])))
    for generation in range(parameters.generations):
        chosen = _tournament(rng, parents, parameters.individuals)
        children = toolbox.mutate(toolbox.mate(np.array([parent.genes for parent in chosen])))
        parents = toolbox.select(parents + individuals(children))
        on_generation(generation + 1, np.array([parent.fitness.values for parent in parents]))
    return np.array([parent.genes for parent in parents])


def _tournament(rng: np.random.Generator, parents: list[Any], count: int) -> list[Any]:
    """DEAP's tournament on rank and crowding; it draws from `random`, which is seeded from `rng`
    for it and left as it was.
    """
    from deap import tools  # noqa: PLC0415

    state = random.getstate()
    random.seed(int(rng.integers(2**63)))
    try:
        return list(tools.selTournamentDCD(parents, count))
    finally:
        random.setstate(state)


@cache
def _individual_type() -> type[Any]:
    """What DEAP selects among: a row of genes and its fitness. DEAP is imported on first use."""
    from deap import base  # noqa: PLC0415

    class Minimised(base.Fitness):  # type: ignore[misc]
        """Three objectives, all to be minimised."""

        weights = (-1.0, -1.0, -1.0)

    class Individual:
        """A row of the population, [genes]."""

        __slots__ = ("fitness", "genes")

        def __init__(self, genes: NDArray[np.int16], objectives: NDArray[np.float64]) -> None:
            self.genes = genes
            self.fitness = Minimised(objectives.tolist())

    return Individual
