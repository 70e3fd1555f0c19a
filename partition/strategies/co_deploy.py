"""Several networks at once on the same devices: one assignment of all their layers.

A merged network (`cnn.merge`) has no tensor from one part to another, and a frame is one input for
each part. With the launcher as source and sink it is one connected graph, so every strategy can
divide it (Yin et al. 2022, §IV-C and §V-F). The load is balanced over all parts together: a device
may have much of one network and little of another.

Two searches compete, and the better result by the problem's objective is taken. One finds
contiguous stages that all networks pass in the same order of devices, by constraint programming as
in Yin et al. The other assigns any layer to any device: exactly where there are few layers and
devices, and heuristically elsewhere. The gap that is reported is to a lower bound on every
assignment of whole layers: the exact search's own, or that of `partition.strategies.bounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cnn.network import Network
from partition.errors import PartitionError
from partition.objective import PERIOD_FIRST
from partition.strategies.base import (
    PART_STEPS,
    Problem,
    SearchProgress,
    Solution,
    Strategy,
    part_of_search,
)
from partition.strategies.bounds import gap_of, least_value
from partition.strategies.chosen import choose
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.search import SolverEffort, megabytes, milliseconds
from partition.strategies.exact.strategy import ROUNDING, Exact

MOST_DECISIONS = 48
"""Layers × devices up to which the assignment of any layer to any device is solved exactly."""

EFFORT = SolverEffort(deterministic=10.0, seconds=30.0)


class CoDeploy:
    """See the module's docstring; `searches` assign any layer to any device where the exact
    strategy does not."""

    name = "co-deploy"

    def __init__(self, searches: Sequence[Strategy] = (), effort: SolverEffort = EFFORT) -> None:
        self._contiguous = Exact("contiguous", Shape(contiguous=True), effort)
        self._exact = Exact("exact", Shape(contiguous=False), effort, others=searches)
        self._searches = tuple(searches)

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` if neither search finds a partition."""
        small = len(problem.network.layers) * len(problem.devices) <= MOST_DECISIONS
        ways = (self._contiguous, *((self._exact,) if small else self._searches))
        found: list[tuple[Strategy, Solution]] = []
        refusals: list[PartitionError] = []
        for number, way in enumerate(ways):
            watched = part_of_search(problem, number, len(ways))
            try:
                found.append((way, way.solve(watched)))
            except PartitionError as error:  # this search cannot respect pins or memory
                refusals.append(error)
        if not found:
            raise refusals[-1]
        population = np.array([problem.numbers(each.assignment) for _, each in found])
        chosen = choose(problem, population)
        best, solution = found[chosen.row]
        others = [way.name for way, _ in found if way is not best]
        steps = PART_STEPS * len(ways)
        problem.on_progress(SearchProgress(steps, steps, best.name))
        compared = f" (compared with {', '.join(others)})" if others else ""
        explanation = f"{_shares(problem, solution)}; {solution.explanation}{compared}"
        if best is not self._exact:
            gap = gap_of(problem, chosen.value)
            explanation += f"; no assignment of whole layers has less than {_bound(problem)}"
            solution = replace(solution, optimal=gap <= ROUNDING, gap=gap)
        return replace(solution, explanation=explanation)


def networks_of(network: Network) -> tuple[tuple[str, ...], ...]:
    """Return the layers of each network that `network` consists of (`Network.component`)."""
    parts: dict[int, list[str]] = {}
    for layer, number in zip(network.layers, network.component, strict=True):
        parts.setdefault(number, []).append(layer.name)
    return tuple(map(tuple, parts.values()))


def _bound(problem: Problem) -> str:
    """Return the lower bound on the objective, such as `period 12.346 ms`."""
    least = least_value(problem)
    match problem.objective:
        case "both" | "paper" | "period" | "latency":
            shown = milliseconds(least)
        case "energy":
            shown = f"{least:.3f} J"
        case "memory":
            unlimited = all(device.memory_bytes is None for device in problem.devices)
            shown = megabytes(least) if unlimited else f"{least:.2%} of a device's room"
    bounded = "period" if problem.objective in PERIOD_FIRST else problem.objective
    return f"{bounded} {shown}"


def _shares(problem: Problem, solution: Solution) -> str:
    """Return, for example, `2 networks side by side: resnet50 on a, b; mobilenet on b`."""
    parts = networks_of(problem.network)
    if len(parts) == 1:
        return "one network"
    shown = []
    for layers in parts:
        devices = {solution.assignment[layer] for layer in layers}
        used = ", ".join(d.name for d in problem.devices if d.name in devices)
        shown.append(f"{layers[0].partition('/')[0]} on {used}")
    return f"{len(parts)} networks side by side: {'; '.join(shown)}"
