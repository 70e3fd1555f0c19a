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
from partition.strategies.base import Problem, SearchProgress, Solution, Strategy
from partition.strategies.bounds import least_value
from partition.strategies.chosen import objective_value
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.search import SolverEffort, megabytes, milliseconds
from partition.strategies.exact.strategy import ROUNDING, Exact

MOST_DECISIONS = 48
"""Layers × devices up to which the assignment of any layer to any device is solved exactly."""

EFFORT = SolverEffort(deterministic=10.0, seconds=30.0)

_STEPS = 1000
"""The number of steps of progress that each candidate reports."""


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
            watched = _watched(problem, number, len(ways))
            try:
                found.append((way, way.solve(watched)))
            except PartitionError as error:  # this search cannot respect pins or memory
                refusals.append(error)
        if not found:
            raise refusals[-1]
        best, solution = found[_best(problem, [each for _, each in found])]
        others = [way.name for way, _ in found if way is not best]
        problem.on_progress(SearchProgress(_STEPS * len(ways), _STEPS * len(ways), best.name))
        compared = f" (compared with {', '.join(others)})" if others else ""
        explanation = f"{_shares(problem, solution)}; {solution.explanation}{compared}"
        if best is not self._exact:
            gap, bound = _gap(problem, solution)
            explanation += f"; no assignment of whole layers has less than {bound}"
            solution = replace(solution, optimal=gap <= ROUNDING, gap=gap)
        return replace(solution, explanation=explanation)


def networks_of(network: Network) -> tuple[tuple[str, ...], ...]:
    """Return the layers of each network that `network` consists of: those that tensors connect.

    Layers that read the same input are connected as well.
    """
    import networkx as nx  # noqa: PLC0415 (slow to import)

    graph = nx.Graph()
    for layer in network.layers:
        graph.add_node(("layer", layer.name))
        for tensor in (*layer.inputs, *layer.outputs):
            graph.add_edge(("layer", layer.name), ("tensor", tensor))
    parts = []
    for nodes in nx.connected_components(graph):
        own = {name for kind, name in nodes if kind == "layer"}
        parts.append(tuple(layer.name for layer in network.layers if layer.name in own))
    return tuple(part for part in parts if part)


def _best(problem: Problem, solutions: Sequence[Solution]) -> int:
    """Return the index of the best by the objective, then by bytes; those that fit come first."""
    population = np.array([problem.numbers(found.assignment) for found in solutions])
    costs = problem.costs.evaluate(population)
    value = objective_value(problem, costs)
    return int(np.lexsort((costs.wire_bytes, value, costs.overrun_bytes))[0])


def _gap(problem: Problem, solution: Solution) -> tuple[float, str]:
    """Return by which fraction another assignment may be better at most, and the lower bound."""
    costs = problem.costs.evaluate(problem.numbers(solution.assignment)[None])
    value, least = float(objective_value(problem, costs)[0]), least_value(problem)
    gap = max(0.0, 1 - least / value) if value > 0 else 0.0
    match problem.objective:
        case "both" | "paper" | "period" | "latency":
            shown = milliseconds(least)
        case "energy":
            shown = f"{least:.3f} J"
        case "memory":
            unlimited = all(device.memory_bytes is None for device in problem.devices)
            shown = megabytes(least) if unlimited else f"{least:.2%} of a device's room"
    bounded = "period" if problem.objective in PERIOD_FIRST else problem.objective
    return gap, f"{bounded} {shown}"


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


def _watched(problem: Problem, number: int, count: int) -> Problem:
    def show(search: SearchProgress) -> None:
        part = _STEPS * search.done // max(1, search.total)
        done = min(number * _STEPS + part, count * _STEPS - 1)
        problem.on_progress(SearchProgress(done, count * _STEPS, search.best))

    return replace(problem, on_progress=show)
