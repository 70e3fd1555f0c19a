"""The segmentations by depth of Villarrubia et al. (2025): SEGM_COMP, SEGM_PROF and SEGM_BALANCED.

A layer's **depth** (§6.1.1) is its largest distance from the network's inputs, counted in layers.
Every tensor leads to a greater depth, so a cut between two depths is a contiguous cut, and it cuts
all branches at one depth.

**`sequential-count`** (SEGM_COMP, §5.2) does what they found the Edge TPU's compiler to do: of L
layers in topological order each of n devices, in the user's order, gets L // n, and the last L mod
n devices get one more. Where pins or memory limits forbid that, it takes the cut whose numbers of
layers differ least from it (in squares), in any order of the devices.

**`sequential-profiled`** (SEGM_PROF, §5.3) takes the best of all cuts by depth. d depths into s
segments make C(d − 1, s − 1) partitions, times the orders of unlike devices. Each is priced by the
problem's objective (`partition.strategies.chosen`). Up to `AFFORDABLE` stages in all, every
partition is tried, and with fewer segments than devices as well. Beyond that (ResNet101 in 6
segments has more than 3·10^9) a dynamic program finds the best cut; it only adds up what each stage
costs by itself. The explanation says which was done, and whether seconds of layers were measured.

**`sequential-balanced`** (SEGM_BALANCED, §6.1) minimises the weights of the heaviest segment over
cuts by depth (Algorithm 1, `partition.strategies.balancing`). While a device has no room for its
segment, its cut moves. What a compiler reports there is predicted: weights and inputs beyond the
cache (Tables 4 and 6 show that an Edge TPU keeps a segment's inputs together with its weights) and
the memory of the agent beyond its limit. Where devices have unequal room (caches, else memory
limits) or layers are pinned, dynamic programming over every order of the devices minimises the
heaviest segment relative to its room. It also finds a cut that the refinement has missed, if there
is one.

`sequential-count` and `sequential-balanced` ignore the problem's objective.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.devices import Device
from partition.objective import PERIOD_FIRST
from partition.pricing.memory_budget import engine_bytes
from partition.pricing.traffic import Floats
from partition.strategies.alike import kind_by_device
from partition.strategies.balancing import Report, balanced_split, refined
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.chosen import choose
from partition.strategies.contiguous.cuts import best_cuts
from partition.strategies.contiguous.segments import Segments, segments
from partition.strategies.contiguous.sequential import (
    best_contiguous,
    least_overfull,
    no_cut_respects,
)
from partition.strategies.contiguous.stages import (
    Best,
    Stages,
    count_cuts,
    cut_vectors,
    device_orders,
)


@dataclass(frozen=True)
class DepthOrder:
    """`problem` with its layers sorted by depth.

    Layer i of the sorted problem is layer `order[i]` of the original one. Depth d has the layers
    from `positions[d]` up to `positions[d + 1]`.
    """

    problem: Problem
    order: NDArray[np.intp]
    positions: tuple[int, ...]

    @property
    def levels(self) -> int:
        """The number of different depths."""
        return len(self.positions) - 1

    def numbers(self, of_level: NDArray[np.integer]) -> NDArray[np.intp]:
        """Return a device number per layer of the original problem, from one per level."""
        found = np.empty(len(self.order), dtype=np.intp)
        found[self.order] = np.repeat(of_level, np.diff(self.positions))
        return found


def layer_depths(network: Network) -> NDArray[np.intp]:
    """Return the depth of each layer, its largest distance from the network's inputs: [layers]."""
    depth = dict.fromkeys(network.inputs, 0)
    depths = []
    for layer in network.layers:
        depths.append(max((depth[tensor] for tensor in layer.inputs), default=0))
        depth |= dict.fromkeys(layer.outputs, depths[-1] + 1)
    return np.array(depths, dtype=np.intp)


def by_depth(problem: Problem) -> DepthOrder:
    """Return the problem with its layers sorted by depth."""
    network = problem.network
    depths = layer_depths(network)
    order = np.argsort(depths, kind="stable")
    layers = tuple(network.layers[number] for number in order)
    counts = np.bincount(depths)
    return DepthOrder(
        replace(
            problem,
            network=replace(network, layers=layers),
            layer_s=None if problem.layer_s is None else problem.layer_s[order],
        ),
        order,
        tuple(np.concatenate([[0], np.cumsum(counts)]).tolist()),
    )


AFFORDABLE = 20_000_000
"""The number of partitions × stages up to which all are tried (a few seconds)."""


class SequentialProfiled:
    """See the module's docstring."""

    name = "sequential-profiled"

    def __init__(self, affordable: int = AFFORDABLE) -> None:
        self._affordable = affordable

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no cut by depth respects.

        Where no cut fits the devices' memory, the solution is the cut that exceeds the limits
        least.
        """
        deep = by_depth(problem)
        priced = segments(deep.problem).at(deep.positions)
        counts = self._counts(deep.levels, priced.kinds)
        if counts is not None:
            population = self._every(problem, deep, priced, counts)
            way = f"best of all {sum(counts.values())} cuts by depth"
        else:
            numbers, _ = best_contiguous(problem, priced)
            population = deep.numbers(numbers)[None]
            way = "best cut by depth, by dynamic programming (there are too many to try them all)"
            problem.on_progress(SearchProgress(1, 1, "by dynamic programming"))
        if not len(population):
            raise no_cut_respects(problem)
        chosen = choose(problem, population)
        seconds = "estimated" if problem.layer_s is None else "measured"
        fit = "" if chosen.fits else "; none was found to fit every device's memory"
        return Solution(
            problem.assignment(chosen.numbers),
            f"{way}, by {problem.objective}, from {seconds} seconds of layers{fit}",
        )

    def _counts(self, levels: int, kinds: Sequence[Sequence[int]]) -> dict[int, int] | None:
        """Return by number of stages the partitions to try; None if they are unaffordable."""
        found: dict[int, int] = {}
        left = self._affordable
        for stages in range(1, min(sum(map(len, kinds)), levels) + 1):
            each = stages * count_cuts(levels, stages)
            orders = device_orders(kinds, stages, again=False)
            number = sum(1 for _ in itertools.islice(orders, left // each + 1))
            left -= number * each
            if left < 0:
                return None
            found[stages] = number * count_cuts(levels, stages)
        return found

    def _every(
        self, problem: Problem, deep: DepthOrder, priced: Segments, counts: dict[int, int]
    ) -> NDArray[np.intp]:
        best = Best(Stages(problem, priced, deep.numbers))
        done, total = 0, sum(counts.values())
        for stages in counts:
            for order in device_orders(priced.kinds, stages, again=False):
                for cuts in cut_vectors(deep.levels, stages):
                    best.offer(order, cuts)
                    done += len(cuts)
                    problem.on_progress(SearchProgress(done, total, f"{stages} segments"))
        return best.assignments()


class SequentialCount:
    """See the module's docstring."""

    name = "sequential-count"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no contiguous cut respects.

        Where no cut fits the devices' memory, the solution is the cut whose fullest device exceeds
        its limit least.
        """
        priced = segments(problem)
        sizes = equal_counts(len(problem.network.layers), len(problem.devices))
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        note = ""
        if not _is_possible(problem, priced, sizes):
            nearest = _nearest(priced, len(problem.devices))
            numbers = least_overfull(problem, priced) if nearest is None else nearest
            note = ", as nearly as pins and memory limits allow"
            if nearest is None:
                note = "; but no contiguous cut was found to fit every device's memory"
        counts = np.bincount(numbers, minlength=len(problem.devices))
        shown = "-".join(str(count) for count in counts)
        problem.on_progress(SearchProgress(1, 1, shown))
        plays = problem.objective in PERIOD_FIRST
        ignored = "" if plays else f" ({problem.objective} plays no part)"
        return Solution(
            problem.assignment(numbers),
            f"equal numbers of layers in every segment{ignored}{note}: {shown}",
        )


def equal_counts(layers: int, devices: int) -> list[int]:
    """Return the number of layers of each device; the last devices get one more if there is a
    remainder.

    >>> equal_counts(7, 3)
    [2, 2, 3]
    """
    least, more = divmod(layers, devices)
    return [least + (number >= devices - more) for number in range(devices)]


def _is_possible(problem: Problem, priced: Segments, sizes: list[int]) -> bool:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    fitting = priced.fitting()
    kind_of = {n: kind for kind, members in enumerate(priced.kinds) for n in members}
    return all(
        fitting[kind_of[number], ends[number], ends[number + 1]]
        for number in range(len(problem.devices))
    )


def _nearest(priced: Segments, devices: int) -> NDArray[np.intp] | None:
    places = np.arange(priced.weight_bytes.shape[0])
    even = (len(places) - 1) / devices
    values = (places[None, :] - places[:, None] - even) ** 2
    found = best_cuts(priced.kinds, np.where(priced.fitting(), values, np.inf), total=True)
    return None if found is None else found[1]


class SequentialBalanced:
    """See the module's docstring."""

    name = "sequential-balanced"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no cut by depth respects.

        Where no cut fits the devices' memory, the solution is the cut that exceeds the limits
        least.
        """
        deep = by_depth(problem)
        priced = segments(deep.problem).at(deep.positions)
        excess = _excess(priced)
        if problem.pins or len(set(_room(priced.devices))) > 1:
            of_level, way = _balanced_by_room(problem, priced, excess), "relative to its room"
        else:
            of_level, way = _balanced(deep, priced, excess)
        numbers = deep.numbers(of_level)
        used = len(set(numbers.tolist()))
        problem.on_progress(SearchProgress(1, 1, f"{used} segments"))
        over = problem.costs.evaluate(numbers[None]).overrun_bytes[0]
        fit = "" if over <= 0 else "; no cut by depth was found to fit every device's memory"
        counts = problem.objective not in ("latency", "energy")
        ignored = "" if counts else f" ({problem.objective} plays no part)"
        return Solution(
            problem.assignment(numbers),
            f"cuts by depth into {used} segments, the heaviest as light as can be{ignored}, "
            f"{way}{fit}",
        )


def level_sizes(priced: Segments) -> list[int]:
    """Return the bytes of weights of each level: the array P of the paper."""
    return [int(size) for size in np.diagonal(priced.weight_bytes, offset=1)]


def _balanced(deep: DepthOrder, priced: Segments, excess: Floats) -> tuple[NDArray[np.intp], str]:
    """Return a device number per level, and a sentence on how it was found."""
    devices, report = len(deep.problem.devices), _predicted(priced, excess)
    sizes = level_sizes(priced)
    _, cuts = balanced_split(sizes, devices)
    moved, moves, steps = refined(cuts, sizes, report)
    found = _of_level(cuts, deep.levels)
    if moves == 0:
        return found, "by Algorithm 1"
    if _reports(moved, deep.levels, report) < _reports(cuts, deep.levels, report):
        found = _of_level(moved, deep.levels)
    way = f"by Algorithm 1 and cuts that moved {moves} levels in {steps} steps for want of room"
    if _reports(moved, deep.levels, report) == 0:
        return found, way
    roomy = best_cuts(priced.kinds, _heaviest(priced, excess, only_fitting=True), total=False)
    if roomy is not None:
        return roomy[1], "by dynamic programming, because moving the cuts did not make room"
    return found, f"{way}, which is not enough"


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
    """Return the bytes that each device has for weights; without a limit, as many as the best."""
    given: list[float | None] = []
    for device in devices:
        if device.cache_bytes is not None:
            given.append(float(max(device.cache_bytes, 1)))
        elif device.memory_bytes is not None:
            engine = engine_bytes(1, engine=device.engine_overhead)
            given.append(float(max(device.memory_bytes - engine, 1)))
        else:
            given.append(None)
    usual = max((room for room in given if room is not None), default=1.0)
    return [usual if room is None else room for room in given]


def _excess(priced: Segments) -> Floats:
    """Return the bytes of every segment that each kind of device has no room for: weights and
    inputs in its cache, everything in its memory."""
    tables = []
    each = zip(priced.devices, priced.peak_bytes, priced.uncached_bytes, strict=True)
    for device, held, uncached in each:
        excess = np.zeros_like(held)
        if device.cache_spill == "layers":
            excess += uncached
        elif device.cache_bytes is not None:
            cached = priced.weight_bytes + priced.received_bytes
            excess += np.maximum(cached - device.cache_bytes, 0.0)
        if device.memory_bytes is not None:
            excess += np.maximum(held - device.memory_bytes, 0.0)
        tables.append(excess)
    return np.stack(tables)


def _predicted(priced: Segments, excess: Floats) -> Report:
    kind_of = kind_by_device(priced.kinds)
    return lambda number, first, end: int(excess[kind_of[number], first, end])


def _reports(cuts: list[int], levels: int, report: Report) -> int:
    ends = [0, *cuts, levels]
    return sum(report(run, ends[run], ends[run + 1]) for run in range(len(ends) - 1))


def _of_level(cuts: list[int], levels: int) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(cuts) + 1), np.diff([0, *cuts, levels]))
