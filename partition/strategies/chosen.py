"""The choice of the best of several assignments by the problem's objective, priced exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partition.pricing.cost import Costs
from partition.pricing.memory_budget import room_bytes
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem


@dataclass(frozen=True, slots=True)
class Chosen:
    """The device number of each layer, the objective's value, and whether the memory suffices.

    `row` is its place in the population.
    """

    row: int
    numbers: NDArray[np.intp]
    value: float
    fits: bool


def choose(problem: Problem, population: NDArray[np.intp]) -> Chosen:
    """Return the best row of `population` [individuals ≥ 1, layers].

    The order is by the excess over memory limits, then by the objective, then by bytes sent.
    """
    costs = problem.costs.evaluate(population)
    value = objective_value(problem, costs)
    row = int(np.lexsort((costs.wire_bytes, value, costs.overrun_bytes))[0])
    return Chosen(row, population[row], float(value[row]), bool(costs.overrun_bytes[row] <= 0))


def objective_value(problem: Problem, costs: Costs) -> Floats:
    """Return the value of the problem's objective: [individuals], in seconds, joules, or as the
    largest share of any device's memory (in bytes if no device has a limit)."""
    match problem.objective:
        case "both" | "paper" | "period":
            return costs.period_s
        case "energy":
            return costs.energy_j
        case "latency":
            return unloaded_latency_s(problem, costs)
    held = costs.memory_bytes * (costs.phases > 0)
    return np.asarray((held / room_bytes(problem.devices)).max(axis=1))


def unloaded_latency_s(problem: Problem, costs: Costs) -> Floats:
    """Return the latency of a frame that enters an empty pipeline of consecutive stages: Eq. 5 of
    Velasco-Montero et al. (2023), [individuals], in seconds."""
    response_s = problem.costs.rates.response_s(costs.busy_s.T, costs.received_bytes.T)
    return np.asarray(response_s.sum(axis=0))
