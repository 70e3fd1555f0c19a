"""Cuts by depth that make the largest segment smallest: SEGM_BALANCED of Villarrubia et al. (2025).

1. **Depth levels** (`partition.strategies.contiguous.depth`).
2. **Balance**: the level-wise cut whose heaviest segment has the fewest bytes of weights, by binary
   search over the bound (Algorithm 1, `partition.strategies.contiguous.balanced_split`).
3. **Refinement**: while a device reports that it has no room for its segment, its cut moves.

What a device reports is a function, so that a compiler's report or a measurement can be plugged in.
By default it is predicted: weights and inputs beyond its cache (what their Tables 4 and 6 show: an
Edge TPU keeps a segment's inputs beside its weights), and all that its agent would hold beyond its
memory limit.

The paper's devices are equal. Where they have unequal room (caches, else memory limits) or layers
are pinned, the heaviest segment relative to its room is minimised by dynamic programming over every
order of the devices. The same finds a cut that the refinement has missed, if there is one. The
objective is not looked at: this strategy balances memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device
from partition.prediction.engine_memory import engine_bytes
from partition.pricing.traffic import Floats
from partition.strategies.alike import kind_by_device
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.contiguous.balanced_split import Report, balanced_split, refined
from partition.strategies.contiguous.best_cuts import best_cuts
from partition.strategies.contiguous.depth import DepthOrder, by_depth
from partition.strategies.contiguous.segments import Segments, segments
from partition.strategies.contiguous.sequential import no_cut_respects

MemoryReport = Callable[[Device, tuple[str, ...]], int]
"""Of a device and the layers that it would have: bytes that it has no room for."""


class SequentialBalanced:
    """See the module's docstring. `report` is what devices say of segments; None: predicted."""

    name = "sequential-balanced"

    def __init__(self, report: MemoryReport | None = None) -> None:
        self._report = report

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no cut by depth respects.

        Where no cut fits the devices' memory, the one that exceeds the limits least.
        """
        deep = by_depth(problem)
        priced = segments(deep.problem).at(deep.positions)
        excess = _excess(priced)
        if problem.pins or len(set(_room(priced.devices))) > 1:
            of_level, way = _balanced_by_room(problem, priced, excess), "relative to its room"
        else:
            given = self._report
            report = _predicted(priced, excess) if given is None else _by_level(deep, given)
            of_level, way = _balanced(deep, priced, excess, report)
        numbers = deep.numbers(of_level)
        used = len(set(numbers.tolist()))
        problem.on_progress(SearchProgress(1, 1, f"{used} segments"))
        over = problem.costs.evaluate(numbers[None]).overrun_bytes[0]
        fit = "" if over <= 0 else "; no cut by depth was found to fit every device's memory"
        counts = problem.objective in ("period", "memory")
        ignored = "" if counts else f" ({problem.objective} plays no part)"
        return Solution(
            problem.assignment(numbers),
            f"cuts by depth into {used} segments, the heaviest as light as can be{ignored}, "
            f"{way}{fit}",
        )


def level_sizes(priced: Segments) -> list[int]:
    """Return the bytes of weights per level: the array P of the paper."""
    return [int(size) for size in np.diagonal(priced.weight_bytes, offset=1)]


def _balanced(
    deep: DepthOrder, priced: Segments, excess: Floats, report: Report
) -> tuple[NDArray[np.intp], str]:
    """A device number per level, and how it was found."""
    devices = len(deep.problem.devices)
    _, cuts = balanced_split(level_sizes(priced), devices)
    moved, moves = refined(cuts, deep.levels, report)
    found = _of_level(cuts, deep.levels)
    if moves == 0:
        return found, "by Algorithm 1"
    if _reports(moved, deep.levels, report) < _reports(cuts, deep.levels, report):
        found = _of_level(moved, deep.levels)
    if _reports(moved, deep.levels, report) == 0:
        return found, f"by Algorithm 1 and {moves} moves of cuts for want of room"
    roomy = best_cuts(priced.kinds, _heaviest(priced, excess, only_fitting=True), total=False)
    if roomy is not None:
        return roomy[1], "by dynamic programming, because moving the cuts did not make room"
    return found, f"by Algorithm 1 and {moves} moves of cuts, which leaves some for want of room"


def _balanced_by_room(problem: Problem, priced: Segments, excess: Floats) -> NDArray[np.intp]:
    for values in (
        _heaviest(priced, excess, only_fitting=True),
        np.where(priced.fitting(), _heaviest(priced, excess, only_fitting=False), np.inf),
        np.where(priced.allowed, priced.memory_share, np.inf),
    ):
        found = best_cuts(priced.kinds, values, total=False)
        if found is not None:
            return found[1]
    raise no_cut_respects(problem)


def _heaviest(priced: Segments, excess: Floats, *, only_fitting: bool) -> Floats:
    room = np.array(_room(priced.devices))[:, None, None]
    possible = priced.allowed & (excess <= 0) if only_fitting else priced.allowed
    return np.where(possible, priced.weight_bytes / room, np.inf)


def _room(devices: tuple[Device, ...]) -> list[float]:
    """Bytes that each device has for weights; one without a limit has as many as the best."""
    given: list[float | None] = []
    for device in devices:
        if device.cache_bytes is not None:
            given.append(float(max(device.cache_bytes, 1)))
        elif device.memory_bytes is not None:
            given.append(float(max(device.memory_bytes - engine_bytes(1), 1)))
        else:
            given.append(None)
    usual = max((room for room in given if room is not None), default=1.0)
    return [usual if room is None else room for room in given]


def _excess(priced: Segments) -> Floats:
    """Bytes of every segment that each kind of device has no room for: in its cache for weights and
    inputs, in its memory for everything."""
    held = priced.peak_bytes
    tables = []
    for device in priced.devices:
        excess = np.zeros_like(held)
        if device.cache_bytes is not None:
            cached = priced.weight_bytes + priced.received_bytes
            excess += np.maximum(cached - device.cache_bytes, 0.0)
        if device.memory_bytes is not None:
            excess += np.maximum(held - device.memory_bytes, 0.0)
        tables.append(excess)
    return np.stack(tables)


def _predicted(priced: Segments, excess: Floats) -> Report:
    kind_of = kind_by_device(priced.kinds)
    return lambda number, first, end: int(excess[kind_of[number], first, end])


def _by_level(deep: DepthOrder, measure: MemoryReport) -> Report:
    names = [layer.name for layer in deep.problem.network.layers]

    def report(number: int, first: int, end: int) -> int:
        layers = tuple(names[deep.positions[first] : deep.positions[end]])
        return measure(deep.problem.devices[number], layers) if layers else 0

    return report


def _reports(cuts: list[int], levels: int, report: Report) -> int:
    ends = [0, *cuts, levels]
    return sum(report(run, ends[run], ends[run + 1]) for run in range(len(ends) - 1))


def _of_level(cuts: list[int], levels: int) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(cuts) + 1), np.diff([0, *cuts, levels]))
