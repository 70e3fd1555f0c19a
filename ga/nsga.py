"""NSGA-II over three objectives, by DEAP; the Pareto front of a search, and the optimality gap.

`evolve` runs NSGA-II. Tournaments select parents by rank, then crowding (`selTournamentDCD`);
two-point crossover and moving a run of genes (`ga.operators.move_run`) make children; `selNSGA2`
keeps the better half of parents and children. Fitnesses follow the rule for memory limits in
`ga.objectives`.

The record of a generation has the **hypervolume** of the population's front: the volume that the
front dominates, up to a reference point, relative to the box from 0 to that point. The reference
has the worst costs of the first population. Of two fronts, the one with the larger hypervolume is
better.

`front_of` filters the assignments that a search has found, and `gap_of` bounds how much better any
assignment could be.

Sources: K. Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE
Transactions on Evolutionary Computation, 2002; E. Zitzler, L. Thiele, "Multiobjective evolutionary
algorithms: a comparative case study and the strength Pareto approach", the same, 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ga.local_search import Move
from ga.objectives import Priced
from ga.operators import Population, move_run
from partition.devices import machines
from partition.objective import PERIOD_FIRST
from partition.pricing.traffic import Floats
from partition.strategies.base import Candidate, Problem

if TYPE_CHECKING:
    from ga.individuals import Evaluate, Register


def front_of(problem: Problem, layers: NDArray[np.intp], priced: Priced) -> tuple[Candidate, ...]:
    """Return the Pareto front of assignments `layers` [individuals, layers], by ascending period.

    If any assignment fits the devices' memory, the whole front does.
    """
    from deap import tools  # noqa: PLC0415 (takes 0.1 s to import)

    from ga.individuals import Individual, population_of  # noqa: PLC0415

    found = population_of(Individual, layers.astype(np.int16))
    for individual, values in zip(found, priced.fitness.tolist(), strict=True):
        individual.fitness.values = values
    front = tools.ParetoFront(similar=_always)
    front.update(found)
    return tuple(
        Candidate(problem.assignment(np.array(each)), *each.fitness.values[1:]) for each in front
    )


def _always(_one: object, _other: object) -> bool:
    """Treat assignments with the same objectives as equal, so that the front keeps one of them."""
    return True


def hypervolume(points: Floats, reference: Sequence[float]) -> float:
    """Return the volume between `points` [points, 3] and a `reference` point.

    A point that is not better than the reference in every objective counts for nothing.
    """
    limit = np.asarray(reference, dtype=np.float64)
    inside = points[(points < limit).all(axis=1)]
    if not len(inside):
        return 0.0
    ordered = inside[np.argsort(inside[:, 2], kind="stable")]
    heights = np.append(ordered[:, 2], limit[2])
    return float(
        sum(
            _area(ordered[: number + 1, :2], limit[:2]) * (heights[number + 1] - heights[number])
            for number in range(len(ordered))
            if heights[number + 1] > heights[number]
        )
    )


def _area(points: Floats, limit: Floats) -> float:
    """Return the area between `points` [points, 2], by the third objective, and a `limit`."""
    area, lowest = 0.0, float(limit[1])
    for first, second in points[np.lexsort((points[:, 1], points[:, 0]))]:
        if second < lowest:
            area += float((limit[0] - first) * (lowest - second))
            lowest = float(second)
    return area


def gap_of(problem: Problem, priced: Priced, chosen: int) -> float | None:
    """Return the largest fraction by which any assignment could improve the chosen one's objective.

    Returns None for objectives without a bound (latency, energy). No period is shorter than that of
    a fluid spread over all devices, nor than the time of the longest layer on the fastest device
    for it; a machine whose cores are shared counts as that many cores. No largest memory is below
    an even share, nor below the largest layer's.
    """
    if problem.objective in PERIOD_FIRST:
        value, bound = float(priced.costs.period_s[chosen]), _least_period_s(problem)
    elif problem.objective == "memory":
        memory = priced.memory[chosen]
        value, bound = float(memory.max()), float(memory.mean())
    else:
        return None
    return max(0.0, 1 - bound / value) if value > 0 else 0.0


def _least_period_s(problem: Problem) -> float:
    seconds = problem.costs.layer_s
    quickest = seconds.min(axis=1)
    at_once = sum(
        min(len(members), max(problem.devices[number].host_cores for number in members))
        for members in machines(problem.devices)
    )
    return max(float(quickest.sum()) / at_once, float(quickest.max()))


@dataclass(frozen=True, slots=True)
class Parameters:
    """`individuals` must be a multiple of four (DEAP's tournament pairs them so)."""

    individuals: int = 64
    generations: int = 50
    crossover: float = 0.5


@dataclass(frozen=True, slots=True)
class Evolved:
    """The last population [individuals, genes], and DEAP's logbook: a record per generation."""

    population: Population
    generations: tuple[Mapping[str, float], ...]


def evolve(
    rng: np.random.Generator,
    population: Population,
    pinned: NDArray[np.integer],
    devices: int,
    evaluate: Evaluate,
    parameters: Parameters,
    on_generation: Callable[[int, float], None],
    move: Move | None = None,
    register: Register | None = None,
) -> Evolved:
    """Run the algorithm; `on_generation` gets (generations done, least period of the population).

    `population` is the first population, of any size ≥ 1; it is filled up or cut to `individuals`.
    `evaluate` prices [individuals, genes] as [individuals, 4]: the excess over memory limits, then
    three objectives, of which the period is the first. `move` mutates; it is to keep the pins.
    `register` may replace operators of the toolbox.
    """
    from deap import algorithms, tools  # noqa: PLC0415 (takes 0.1 s to import)

    from ga import individuals  # noqa: PLC0415

    def mutate(individual: Any) -> tuple[Any]:
        own = individuals.genes_of([individual])
        moved = move_run(rng, own, pinned, devices) if move is None else move(rng, own)
        individual[:] = type(individual)(moved.tobytes())
        return (individual,)

    toolbox: Any = individuals.new_toolbox(individuals.Individual, evaluate)
    toolbox.register("select", tools.selNSGA2, k=parameters.individuals)
    toolbox.register("mate", tools.cxTwoPoint)
    toolbox.register("mutate", mutate)
    if register is not None:
        register(toolbox)
    statistics = tools.Statistics(lambda individual: individual.fitness.values)
    for column, name in enumerate(("excess_bytes", "period_s", "memory", "wire_bytes")):
        statistics.register(f"least_{name}", _least, column)
    logbook = tools.Logbook()
    crossover = parameters.crossover if population.shape[1] > 1 else 0.0
    missing = rng.integers(0, len(population), max(parameters.individuals - len(population), 0))
    with individuals.seeded(rng):
        parents = toolbox.population(population)
        mutants = [toolbox.clone(parents[number]) for number in missing]
        parents += [toolbox.mutate(toolbox.mutate(mutant)[0])[0] for mutant in mutants]
        individuals.price(toolbox, parents)
        parents = toolbox.select(parents)
        reference = np.array([each.fitness.values for each in parents])[:, 1:].max(axis=0)
        for generation in range(1, parameters.generations + 1):
            chosen = tools.selTournamentDCD(parents, parameters.individuals)
            children = algorithms.varAnd(chosen, toolbox, crossover, mutpb=1.0)
            if register is not None:
                individuals.pin(children, pinned)
            evaluations = individuals.price(toolbox, children)
            parents = toolbox.select(parents + children)
            found = statistics.compile(parents)
            volume = _volume(parents, reference)
            logbook.record(
                generation=generation, evaluations=evaluations, hypervolume=volume, **found
            )
            on_generation(generation, found["least_period_s"])
    return Evolved(individuals.genes_of(parents), individuals.records(logbook))


def _volume(parents: Sequence[Any], reference: Floats) -> float:
    values = np.array([each.fitness.values for each in parents])
    points = values[values[:, 0] <= values[:, 0].min(), 1:] / np.maximum(reference, 1e-300)
    return hypervolume(np.unique(points, axis=0), [1.0] * points.shape[1])


def _least(column: int, values: tuple[tuple[float, ...], ...]) -> float:
    return min(value[column] for value in values)
