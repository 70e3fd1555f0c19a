"""NSGA-II over three objectives, by DEAP, and the Pareto front of a search.

`evolve` runs NSGA-II. Tournaments select parents by rank, then crowding (`selTournamentDCD`);
two-point crossover and moving a run of genes (`ga.operators.move_run`) make children; `selNSGA2`
keeps the better half of parents and children. Fitnesses follow the rule for memory limits in
`ga.objectives`.

The record of a generation has the **hypervolume** (`ga.fronts`) of the population's front, relative
to the box from 0 to the reference point, which has the worst costs of the first population.

`front_of` filters the assignments that a search has found.

Source: K. Deb et al., "A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE
Transactions on Evolutionary Computation, 2002.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ga.fronts import hypervolume
from ga.local_search import Move
from ga.objectives import Priced
from ga.operators import Population, move_run
from partition.pricing.traffic import Floats
from partition.strategies.base import Candidate, Problem

if TYPE_CHECKING:
    from ga.checkpoint import Checkpoint
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
    checkpoint: Checkpoint | None = None,
) -> Evolved:
    """Run the algorithm; `on_generation` gets (generations done, least period of the population).

    `population` is the first population, of any size ≥ 1; it is filled up or cut to `individuals`.
    `evaluate` prices [individuals, genes] as [individuals, 4]: the excess over memory limits, then
    three objectives, of which the period is the first. `move` mutates; it is to keep the pins.
    `register` may replace operators of the toolbox. The evolution continues from the file of
    `checkpoint` if it exists, also for more generations, and is kept there; see `ga.checkpoint` for
    the errors.
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
        kept = None if checkpoint is None else checkpoint.read(rng, individuals.Individual)
        if kept is None:
            parents = toolbox.population(population)
            mutants = [toolbox.clone(parents[number]) for number in missing]
            parents += [toolbox.mutate(toolbox.mutate(mutant)[0])[0] for mutant in mutants]
            individuals.price(toolbox, parents)
            parents = toolbox.select(parents)
            reference = np.array([each.fitness.values for each in parents])[:, 1:].max(axis=0)
        else:
            parents, reference = kept.population, kept.arrays["reference"]
            for each, distance in zip(parents, kept.arrays["crowding"].tolist(), strict=True):
                each.fitness.crowding_dist = distance
            logbook.extend(kept.records)
        done = 0 if kept is None else kept.generation
        for generation in range(done + 1, parameters.generations + 1):
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
            if checkpoint is not None and (
                generation == parameters.generations or generation % checkpoint.every == 0
            ):
                checkpoint.write(
                    rng,
                    parents,
                    individuals.records(logbook),
                    reference=reference,
                    crowding=np.array([each.fitness.crowding_dist for each in parents]),
                )
            on_generation(generation, found["least_period_s"])
    return Evolved(individuals.genes_of(parents), individuals.records(logbook))


def _volume(parents: Sequence[Any], reference: Floats) -> float:
    values = np.array([each.fitness.values for each in parents])
    points = values[values[:, 0] <= values[:, 0].min(), 1:] / np.maximum(reference, 1e-300)
    return hypervolume(np.unique(points, axis=0).tolist(), [1.0] * points.shape[1])


def _least(column: int, values: tuple[tuple[float, ...], ...]) -> float:
    return min(value[column] for value in values)
