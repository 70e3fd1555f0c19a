"""Whole copies of the network on several devices, and frames dealt out to them.

Each device gets frames in proportion to its speed, in a cycle of at most `LONGEST_CYCLE` frames:
the shortest cycle whose period is within `TOLERANCE` of the best. These devices are left out: those
whose memory does not hold the network, those too slow to earn one frame of a cycle, and those
without which the period is no longer (because devices share a machine's cores or the launcher's
link, say).

The speed of a copy comes from the linear time model of its device: two batches that `partition
profile` has measured (`Problem.copies`). A stream pays the fixed part once, so the time per further
frame decides. Without a profile the cost model estimates it, and the explanation says so.

`batch-split-paper` deals out batches of `LONGEST_CYCLE` frames by the paper's Eq. 1 instead: in
inverse proportion to the devices' times for the whole batch, fixed parts included.

Frames come out in order, so frames of a fast copy wait for those of a slow one and take memory.
Where memory is short, a device gets fewer frames and the others more.

Source: Vanishree et al., "CoIn: Accelerated CNN Co-Inference through data partitioning on
heterogeneous devices", ICACCS 2020; in CSDF the deal is a cyclic production pattern
(`csdf.conversion.from_network`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cnn.rewrite.rewrites import Copies, copy_name
from csdf.conversion.from_network import balanced_pattern, longest_wait
from partition.devices import launcher_s
from partition.errors import PartitionError
from partition.pricing.busy import period_s, rates_of, shared_machines
from partition.pricing.linear_models import (
    LinearTime,
    deal_by_ratio,
    deal_frames,
)
from partition.pricing.traffic import LONG_BYTES
from partition.strategies.base import (
    Problem,
    SearchProgress,
    Solution,
    apply_rewrites,
    refuse_state,
    required_model,
)

LONGEST_CYCLE = 32
"""The number of frames of the longest cycle that is tried."""

TOLERANCE = 0.01
"""By how much a period may exceed the shortest one for the sake of a shorter cycle (relative)."""


class BatchSplit:
    """See the module's docstring; `by_ratio` deals by the paper's Eq. 1."""

    def __init__(self, name: str = "batch-split", *, by_ratio: bool = False) -> None:
        self.name = name
        self._by_ratio = by_ratio

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`.

        With pins to one device, that device computes everything. Raises `PartitionError` for pins
        to several devices, because every copy is whole, and for a network that keeps state.
        """
        refuse_state(problem, self.name)
        pinned = set(problem.pins.values())
        if len(pinned) > 1:
            raise PartitionError(
                f"strategy {self.name!r} gives each device a whole copy of the network, so layers "
                f"cannot be pinned to {len(pinned)} devices; remove the pins, or choose another "
                "strategy"
            )
        copies = CopyLoads(problem, by_ratio=self._by_ratio)
        usable = [i for i, device in enumerate(problem.devices) if device.name in pinned]
        frames = copies.frames(usable or copies.usable())
        problem.on_progress(SearchProgress(1, 1, _ratio(frames)))
        used = [number for number, count in enumerate(frames) if count]
        explanation = _explanation(problem, frames, copies)
        if len(used) == 1:
            device = problem.devices[used[0]].name
            assignment = {layer.name: device for layer in problem.network.layers}
            return Solution(assignment, explanation)
        rewrites = (Copies(tuple(frames[number] for number in used)),)
        copied = apply_rewrites(problem, required_model(problem, self.name), rewrites)
        device_of = {
            copy_name(layer.name, copy): problem.devices[number].name
            for copy, number in enumerate(used, start=1)
            for layer in problem.network.layers
        }
        assignment = {layer.name: device_of[layer.name] for layer in copied.network.layers}
        return Solution(assignment, explanation, rewrites=rewrites, network=copied.network)


@dataclass(frozen=True)
class _Alone:
    """The costs of a frame on a device that computes the whole network.

    `frame_s` is the time between two frames, of which the processor is busy for `busy_s`; a batch
    takes `fixed_s` longer. `more_frames` is how many more frames the device has room for.
    """

    fixed_s: float
    frame_s: float
    busy_s: float
    energy_j: float
    latency_s: float
    more_frames: int | None
    fits: bool


class CopyLoads:
    """The loads of devices that each compute a whole copy of the network."""

    def __init__(self, problem: Problem, *, by_ratio: bool = False) -> None:
        self._problem = problem
        self._by_ratio = by_ratio
        self._shared = shared_machines(problem.devices)
        count, layers = len(problem.devices), len(problem.network.layers)
        costs = problem.costs.evaluate(np.arange(count)[:, None].repeat(layers, axis=1))
        ends = {*problem.network.inputs, *problem.network.outputs}
        sizes = {name: problem.network.tensors[name].bytes for name in ends}
        # Long results wait at the launcher.
        frame_bytes = sum(
            size
            for name, size in sizes.items()
            if name in problem.network.inputs or size < LONG_BYTES
        )
        self._given, self._results = (
            sum(problem.network.tensors[name].bytes for name in names)
            for names in (problem.network.inputs, problem.network.outputs)
        )
        self.alone = []
        for number, device in enumerate(problem.devices):
            busy_s = float(costs.busy_s[number, number])
            link_s = rates_of(device).link_s(
                float(costs.sent_bytes[number, number]), float(costs.received_bytes[number, number])
            )
            measured = problem.copies.get(device.name)
            limit, held = device.memory_bytes, int(costs.memory_bytes[number, number])
            self.alone.append(
                _Alone(
                    0.0 if measured is None else measured.fixed_s,
                    max(busy_s if measured is None else measured.frame_s, float(link_s)),
                    busy_s if measured is None else min(busy_s, measured.frame_s),
                    float(costs.energy_j[number]),
                    float(costs.latency_s[number]),
                    None if limit is None else max(0, limit - held) // max(1, frame_bytes),
                    limit is None or held <= limit,
                )
            )

    def usable(self) -> list[int]:
        """Return the devices that hold the network; all of them if none does (`make_plan` refuses
        then).

        For objectives that dealing out cannot improve, return the one device that is best for them.
        """
        fitting = [number for number, alone in enumerate(self.alone) if alone.fits]
        fitting = fitting or list(range(len(self.alone)))
        match self._problem.objective:
            case "latency":
                return [min(fitting, key=lambda number: self.alone[number].latency_s)]
            case "energy":
                return [min(fitting, key=lambda number: self.alone[number].energy_j)]
        return fitting

    def frames(self, usable: Sequence[int]) -> tuple[int, ...]:
        """Return how many frames of a cycle each device gets, 0 if it gets none."""
        frames = self._best_cycle(usable)
        for number in sorted(usable, key=lambda number: -self.alone[number].frame_s):
            fewer = [other for other in usable if frames[other] and other != number]
            if frames[number] and fewer:
                without = self._best_cycle(fewer)
                if self.period_s(without) <= self.period_s(frames) * (1 + 1e-9):
                    frames = without
        return frames

    def _best_cycle(self, usable: Sequence[int]) -> tuple[int, ...]:
        if self._by_ratio:
            batches = (self._cycle(usable, length) for length in range(LONGEST_CYCLE, 0, -1))
            largest = next(batch for batch in batches if batch is not None)
            return tuple(count // math.gcd(*largest) for count in largest)
        cycles = [self._cycle(usable, length) for length in range(1, LONGEST_CYCLE + 1)]
        fitting = [cycle for cycle in cycles if cycle is not None]
        best = min(map(self.period_s, fitting))
        return next(c for c in fitting if self.period_s(c) <= best * (1 + TOLERANCE))

    def _cycle(self, usable: Sequence[int], length: int) -> tuple[int, ...] | None:
        """Deal `length` frames out so that they are done as early as possible, or by the ratio.

        A device without room for all frames that would wait there gets fewer frames, and the
        others more. Returns None if the devices cannot take all frames.
        """
        each = [self.alone[number] for number in usable]
        if self._by_ratio:
            deal, speeds = deal_by_ratio, [LinearTime(a.fixed_s, a.frame_s) for a in each]
        else:  # a stream pays the fixed part once
            deal, speeds = deal_frames, [LinearTime(0.0, a.frame_s) for a in each]
        most: list[int | None] = [None] * len(usable)
        while True:
            try:
                dealt = deal(speeds, length, most)
            except PartitionError:
                return None
            place = self._overfull(usable, dealt)
            if place is None:
                break
            most[place] = dealt[place] - 1
        frames = [0] * len(self.alone)
        for number, count in zip(usable, dealt, strict=True):
            frames[number] = count
        return tuple(frames)

    def _overfull(self, usable: Sequence[int], dealt: Sequence[int]) -> int | None:
        """Return the index of a device without room for the frames that wait there, or None."""
        rooms = [self.alone[number].more_frames for number in usable]
        tight = [
            place
            for place, (room, count) in enumerate(zip(rooms, dealt, strict=True))
            if room is not None and count > room + 1
        ]
        pattern = balanced_pattern(dealt) if tight else ()
        waits = ((place, longest_wait(pattern, place), rooms[place]) for place in tight)
        return next((place for place, wait, room in waits if wait > (room or 0) + 1), None)

    def period_s(self, frames: Sequence[int]) -> float:
        """Return the seconds per frame if each device gets its number of `frames` per cycle."""
        problem, cycle = self._problem, sum(frames)
        share = np.array(frames) / cycle
        behind = [n for n, d in enumerate(problem.devices) if d.launcher_bytes_per_s is not None]
        passing = sum(frames[number] for number in behind) / cycle
        launcher = passing * self._given, passing * self._results
        passing_s = launcher_s([problem.devices[number] for number in behind], *launcher)
        busy_s = share * [alone.busy_s for alone in self.alone]
        frame_s = share * [alone.frame_s for alone in self.alone]
        return float(period_s(self._shared, busy_s, frame_s, passing_s))


def _ratio(frames: Sequence[int]) -> str:
    return " : ".join(map(str, frames))


def _explanation(problem: Problem, frames: Sequence[int], copies: CopyLoads) -> str:
    used = [number for number, count in enumerate(frames) if count]
    names = [problem.devices[number].name for number in used]
    left_out: dict[str, list[str]] = {}
    for number, device in enumerate(problem.devices):
        if not frames[number]:
            reason = "not worth a copy" if copies.alone[number].fits else "too small"
            left_out.setdefault(reason, []).append(device.name)
    why = "".join(f"; {reason}: {', '.join(who)}" for reason, who in left_out.items() if who)
    if len(used) == 1:
        return f"the whole network on {names[0]}{why}"
    dealt = ", ".join(f"{frames[number]} to {problem.devices[number].name}" for number in used)
    measured = all(name in problem.copies for name in names)
    basis = "measured batches" if measured else "estimates, not measured batches"
    return f"whole copies; of {sum(frames)} frames {dealt}, by {basis}{why}"
