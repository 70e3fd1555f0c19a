"""The Pareto front of what a search has found, and how far from the best its choice may be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ga.objectives import Priced
from partition.devices import machines
from partition.nondominated import nondominated
from partition.strategies.base import Candidate, Problem


def front_of(problem: Problem, layers: NDArray[np.intp], priced: Priced) -> tuple[Candidate, ...]:
    """The front of assignments `layers` [individuals, layers], by ascending period; only what fits
    the devices' memory, if anything does.
    """
    fitting = np.flatnonzero(priced.costs.overrun_bytes <= 0)
    among = fitting if len(fitting) else np.arange(len(layers))
    rows = among[nondominated(priced.objectives[among])]
    return tuple(
        Candidate(
            problem.assignment(layers[row]),
            float(priced.objectives[row, 0]),
            float(priced.objectives[row, 1]),
            float(priced.costs.wire_bytes[row]),
        )
        for row in rows[np.argsort(priced.objectives[rows, 0], kind="stable")]
    )


def gap_of(problem: Problem, priced: Priced, chosen: int) -> float | None:
    """By which fraction an assignment could better the chosen one's objective at most.

    None for objectives without a bound (latency, energy). The period of no assignment is below
    what all devices take if the work were a fluid spread over them, nor below the longest layer on
    the device that is quickest with it; machines whose cores devices share count as those cores.
    Nobody's memory is below an even share, nor below the largest layer's.
    """
    if problem.objective == "period":
        value, bound = float(priced.objectives[chosen, 0]), _least_period_s(problem)
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
