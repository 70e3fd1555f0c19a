"""The genetic algorithm of Tang & Stefanov (2021), §4.2, on their Eq. 1.

A chromosome has one gene per layer, the number of its device. Two parents exchange genes between
two points, a single gene mutates, and φ (Eq. 1), the sum of the differences of all pairs of devices
in Eq. 2's memory, is minimised. Population, generations and mutation rate are the paper's; it
leaves the rest to "standard" choices, which here are: tournaments of three, crossover of nine pairs
in ten, and survival of the best individual. Part of the first population is assigned by longest
processing time first, which the paper does not do.

DEAP's toolbox holds the operators; each works on the whole population as one array.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ga import operators
from ga.operators import Population
from partition.paper_equations import beta_bytes, layer_beta_bytes, phi, phi_lower_bound
from partition.strategies.base import Problem
from partition.strategies.longest_first import longest_first

if TYPE_CHECKING:
    from deap import base, tools

Penalty = Callable[[Population], NDArray[np.float64]]
"""What exceeds the devices' memory limits, in bytes, for each row."""


@dataclass(frozen=True, slots=True)
class PaperParameters:
    """The paper's values where it gives them; `seeded` is the share of the first population that
    longest-processing-time assigns, `spread` how far its sizes are blurred (see
    `partition.strategies.longest_first`).

    `stop_when_optimal` ends the search once φ has reached a bound that no assignment can beat.
    """

    individuals: int = 5000
    generations: int = 100
    mutation: float = 0.05
    crossover: float = 0.9
    tournament: int = 3
    seeded: float = 0.02
    spread: float = 0.2
    stop_when_optimal: bool = True


@dataclass(frozen=True, slots=True)
class Evolution:
    """The best individual found (device number per layer), its φ in bytes, a bound below which φ
    cannot be, and DEAP's logbook: one record per generation with the least and the mean φ.
    """

    best: NDArray[np.intp]
    phi: float
    phi_bound: float
    generations: int
    logbook: tools.Logbook

    @property
    def is_optimal(self) -> bool:
        """Whether no assignment can have a smaller φ."""
        return self.phi <= self.phi_bound


def evolve(
    problem: Problem,
    parameters: PaperParameters,
    on_generation: Callable[[int, NDArray[np.intp], float], None],
    penalty: Penalty | None = None,
) -> Evolution:
    """Run the algorithm; `on_generation` gets (generations done, best so far, its φ).

    With a `penalty`, whatever exceeds the memory limits ranks behind all that does not.
    """
    from deap import tools  # noqa: PLC0415 (takes 0.1 s to import)

    beta = layer_beta_bytes(problem.network)
    bound = phi_lower_bound(beta, len(problem.devices))
    toolbox = _toolbox(problem, parameters, beta, penalty)
    statistics = tools.Statistics(key=float)
    statistics.register("least", np.min)
    statistics.register("mean", np.mean)
    logbook = tools.Logbook()
    logbook.header = ("generation", "least", "mean")
    population: Population = toolbox.population()
    fitness: NDArray[np.float64] = toolbox.evaluate(population)
    generation = 0
    while True:
        leader = int(fitness.argmin())
        best, least = population[leader].copy(), float(fitness[leader])
        logbook.record(generation=generation, **statistics.compile(fitness))
        on_generation(generation, best.astype(np.intp), least)
        optimal = parameters.stop_when_optimal and least <= bound
        if generation == parameters.generations or optimal:
            return Evolution(best.astype(np.intp), least, bound, generation, logbook)
        population = toolbox.mutate(toolbox.mate(population[toolbox.select(fitness)]))
        population[0] = best
        fitness = toolbox.evaluate(population)
        generation += 1


def _toolbox(
    problem: Problem,
    parameters: PaperParameters,
    beta: NDArray[np.float64],
    penalty: Penalty | None,
) -> base.Toolbox:
    from deap import base  # noqa: PLC0415

    rng = np.random.default_rng(problem.seed)
    devices, pinned = len(problem.devices), problem.pinned

    def first_population() -> Population:
        drawn = operators.random_population(rng, parameters.individuals, pinned, devices)
        seeds = round(parameters.seeded * parameters.individuals)
        if seeds:
            sizes = np.repeat(beta[:, None], devices, axis=1)
            drawn[:seeds] = longest_first(rng, seeds, sizes, pinned, parameters.spread)
        return drawn

    def fitness(population: Population) -> NDArray[np.float64]:
        values = phi(beta_bytes(beta, population, devices))
        if penalty is None:
            return values
        excess = penalty(population)
        return np.where(excess > 0, _BEHIND + excess, values)

    toolbox: Any = base.Toolbox()
    toolbox.register("population", first_population)
    toolbox.register("evaluate", fitness)
    toolbox.register(
        "select",
        operators.tournament,
        rng,
        count=parameters.individuals,
        size=parameters.tournament,
    )
    toolbox.register("mate", operators.two_point_crossover, rng, probability=parameters.crossover)
    toolbox.register(
        "mutate",
        operators.single_gene_mutation,
        rng,
        probability=parameters.mutation,
        free=np.flatnonzero(pinned < 0),
        devices=devices,
    )
    return toolbox


_BEHIND = 1e18
"""Above any φ in bytes."""
