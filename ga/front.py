"""The Pareto front of the assignments that a search has found, and the optimality gap of one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ga.objectives import Priced
from partition.devices import machines
from partition.strategies.base import Candidate, Problem


def front_of(problem: Problem, layers: NDArray[np.intp], priced: Priced) -> tuple[Candidate, ...]:
    """Return the Pareto front of assignments `layers` [individuals, layers], by ascending period.

    Where something fits the devices' memory, so does the whole front.
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
    """Of assignments with the same objectives, the front keeps one."""
    return True


def gap_of(problem: Problem, priced: Priced, chosen: int) -> float | None:
    """Return by which fraction any assignment could better the chosen one's objective at most.

    None for objectives without a bound (latency, energy). The period of no assignment is below
    what all devices take if the work were a fluid spread over them, nor below the longest layer on
    the device that is quickest with it; machines whose cores devices share count as those cores.
    Nobody's memory is below an even share, nor below the largest layer's.
    """
    if problem.objective == "period":
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
