"""What the default search weighs: time, memory and bytes; and which compromise it takes.

**Time** is the period plus half of the busiest device's work, so that where the period is set by
something else (a link, or cores that devices share) the work is still spread fairly. **Memory** is
the heaviest device's weights relative to its share of all devices' memory, on top of the largest
activation, which any device may have to hold. **Bytes** are those sent from device to device.
**Phases** are counted because each is a subnet to deploy, a firing, and often a step of latency.

Memory limits are no objective but a constraint: what exceeds them is worse in every objective than
what does not.

One solution of a Pareto front is chosen by its `Preference`: the weighted sum of the objectives'
logarithms. A weight is thus an exchange rate: with memory at 0.5, one per cent of time is worth two
per cent of memory; with bytes at 0.05, twenty per cent of bytes; with phases at 0.02, fifty per
cent of phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partition.cost import Costs
from partition.devices import Device
from partition.engine_memory import engine_bytes
from partition.strategies.base import Problem

FAIRNESS = 0.5
"""How much the busiest device's work counts beside the period."""

OVER_LIMIT = 10.0
"""The factor by which every objective worsens as soon as a memory limit is exceeded."""


@dataclass(frozen=True, slots=True)
class Preference:
    """Exchange rates between the objectives; time's own weight is 1 unless it does not matter."""

    time: float = 1.0
    memory: float = 0.5
    traffic: float = 0.05
    phases: float = 0.02

    def score(self, objectives: NDArray[np.float64]) -> NDArray[np.float64]:
        """Smaller is better: [individuals] from objectives [individuals, 4]."""
        weights = np.array([self.time, self.memory, self.traffic, self.phases])
        return np.asarray(np.log(objectives) @ weights)


def fair_memory(devices: Sequence[Device]) -> NDArray[np.float64]:
    """How much room for tensors each device has, relative to the mean: float64 [devices]."""
    limits = [device.memory_bytes for device in devices]
    largest = max((limit for limit in limits if limit is not None), default=1)
    empty = engine_bytes(1)
    room = np.array([max((limit or largest) - empty, largest / 100) for limit in limits])
    return np.asarray(room / room.mean())


class Objectives:
    """Turns costs into the four objectives, all above 0 and to be minimised."""

    def __init__(self, problem: Problem) -> None:
        network = problem.network
        limits = [device.memory_bytes for device in problem.devices]
        self._fair = fair_memory(problem.devices)
        self._activation = max(network.activation_bytes(layer.name) for layer in network.layers)
        ends = {*network.inputs, *network.outputs}
        self._floor = sum(network.tensors[name].bytes for name in ends)
        self._allowed = float(sum(limit for limit in limits if limit is not None))

    def __call__(self, costs: Costs) -> NDArray[np.float64]:
        """Objectives [individuals, 4]: seconds, bytes, bytes, a count."""
        time = costs.period_s + FAIRNESS * costs.busy_s.max(axis=1)
        memory = (costs.weight_bytes / self._fair).max(axis=1) + self._activation
        traffic = costs.wire_bytes + self._floor
        values = np.column_stack([time, memory, traffic, costs.phases.sum(axis=1)])
        if self._allowed:
            excess = costs.overrun_bytes / self._allowed
            values *= np.where(excess > 0, OVER_LIMIT * (1 + 10 * excess), 1.0)[:, None]
        return np.asarray(np.maximum(values, np.finfo(float).tiny))
