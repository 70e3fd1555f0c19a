"""What a plan will do, frame by frame: its run simulated on threads, machines and links.

The closed forms of `partition.prediction.timing` say what a plan can reach. What it does depends on
more: how threads take turns on CPUs, who gets the processor when several phases could fire, how far
FIFOs fill. So the run is simulated as a CSDF graph (`partition.prediction.simulated_graph`), with a
source that always has the next frame, and the latency of a frame is counted as it is measured: from
its departure at the host to its result's arrival.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.conversion.from_network import HOST, SOURCE
from csdf.execution.shared_machine import Platform
from csdf.execution.simulation import Timeline, simulate
from partition.plan import Plan
from partition.prediction.simulated_costs import RunCosts
from partition.prediction.simulated_graph import (
    RunGraph,
    arrived,
    ended,
    executor,
    io_thread,
    wire_thread,
)

AHEAD = 1
"""Firings that wait for a device's executor while it runs one (`nodes.core.actor`)."""

EXECUTOR_SPREAD = Fraction(1, 10)
IO_SPREAD = Fraction(1)
"""How much less or more than usual a phase, or serving the network, takes at most, as a share."""


@dataclass(frozen=True)
class Prediction:
    """A run as it is predicted; frames in order, seconds since its first frame was at hand.

    `sent_s` and `received_s` are when all inputs of a frame were on their way and when its last
    output had arrived. `fifo_bytes` is the most that each device's incoming FIFOs hold at once.
    `executor_s` and `io_s` are the processor seconds per frame of a device's executor and of the
    threads that serve the network; the host has only the latter.
    """

    sent_s: tuple[float, ...]
    received_s: tuple[float, ...]
    fifo_bytes: Mapping[str, int]
    executor_s: Mapping[str, float]
    io_s: Mapping[str, float]
    cycle: int = 1
    """In how many frames the pattern recurs in which they are dealt out to copies."""

    @property
    def period_s(self) -> float:
        """Seconds per frame while the pipeline is full, over whole cycles if there are any."""
        full = full_frames(self.sent_s, self.received_s)
        if len(full) > self.cycle:
            full = full[: len(full) - (len(full) - 1) % self.cycle]
        passed_s = self.received_s[full[-1]] - self.received_s[full[0]]
        return passed_s / max(1, len(full) - 1)

    @property
    def latency_s(self) -> float:
        """Median seconds from departure to arrival while the pipeline is full."""
        full = full_frames(self.sent_s, self.received_s)
        return statistics.median(self.received_s[k] - self.sent_s[k] for k in full)


def full_frames(sent_s: Sequence[float], received_s: Sequence[float]) -> range:
    """The frames, two at least of two or more, that came while the pipeline was full: neither the
    first third, while it fills, nor those after the last one's departure, when it empties."""
    first = len(received_s) // 3
    last = sum(received <= sent_s[-1] for received in received_s)
    return range(first, last) if last >= first + 2 else range(len(received_s))


def predict(
    plan: Plan,
    costs: RunCosts | None = None,
    *,
    order: Literal["pipelined", "strict"] = "pipelined",
    frames: int | None = None,
    even: bool = False,
) -> Prediction:
    """The first `frames` frames of a run of `plan`.

    Without `frames`, as many as fill the pipeline several times over; without `costs`, those that
    are usual. If `even`, nothing takes less or more time than usual. Raises
    `csdf.errors.TooLargeError` beyond `csdf.execution.simulation.FIRING_LIMIT`.
    """
    built = RunGraph(plan, costs or RunCosts.known(plan.devices))
    if frames is None:
        most = max((phase.skew for phase in plan.phases), default=0)
        frames = (48 + 4 * most) * len(set(plan.dealing))
    cycles = -(-frames // len(plan.dealing))
    devices = [device.name for device in plan.devices]
    timeline = simulate(
        built.graph(),
        cycles,
        built.processors,
        _turns(plan) if order == "strict" else {},
        Platform(
            built.machines(),
            built.wakes(),
            {executor(device): AHEAD for device in devices},
            {} if even else _spread(devices),
            built.ranks(),
        ),
    )
    simulated = cycles * len(plan.dealing)
    worked = {thread: float(time) / simulated for thread, time in timeline.worked().items()}
    return Prediction(
        tuple(float(firing.end) for firing in timeline.of(SOURCE)[:frames]),
        _received_s(timeline, built.results(), plan.dealing, frames),
        _fifo_bytes(timeline, plan),
        {device: worked.get(executor(device), 0.0) for device in devices},
        {
            device: worked.get(io_thread(device), 0.0) + worked.get(wire_thread(device), 0.0)
            for device in (HOST, *devices)
        },
        len(plan.dealing),
    )


def _spread(devices: list[str]) -> dict[str, Fraction]:
    executors = {executor(device): EXECUTOR_SPREAD for device in devices}
    return executors | {io_thread(device): IO_SPREAD for device in (HOST, *devices)}


def _turns(plan: Plan) -> dict[str, list[str]]:
    """Executor → its phases in the order of their index, for each frame of a cycle that it gets."""
    turns: dict[str, list[str]] = {}
    for phase in sorted(plan.phases, key=lambda phase: phase.index):
        turns.setdefault(executor(phase.device), []).append(phase.name)
    copy = {executor(phase.device): phase.copy for phase in plan.phases}
    return {thread: own * plan.dealing.count(copy[thread]) for thread, own in turns.items()}


def _received_s(
    timeline: Timeline, results: Mapping[int, list[str]], dealing: Sequence[int], frames: int
) -> tuple[float, ...]:
    """When each frame was there with all before it: results are taken in frame order."""
    ends = {copy: zip(*map(timeline.of, actors), strict=True) for copy, actors in results.items()}
    firings = (next(ends[dealing[frame % len(dealing)]]) for frame in range(frames))
    there = (max(float(firing.end) for firing in own) for own in firings)
    return tuple(itertools.accumulate(there, max))


def _fifo_bytes(timeline: Timeline, plan: Plan) -> dict[str, int]:
    """Device → the most that its incoming FIFOs hold, as `nodes.core.held` counts it."""
    changes: dict[str, list[tuple[Fraction, int]]] = {device.name: [] for device in plan.devices}
    for channel in plan.channels:
        if channel.target_device == HOST:
            continue
        came = ended(channel.source)
        if not channel.is_local:
            came = arrived(channel.source, channel.target_device)
        readers = [timeline.of(ended(target)) for target in channel.targets]
        held = changes[channel.target_device]
        for number, firing in enumerate(timeline.of(came)):
            held.append((firing.end, channel.tensor.bytes))
            held.append((max(read[number].end for read in readers), -channel.tensor.bytes))
    found = {}
    for device, events in changes.items():
        most = now = 0
        for _, change in sorted(events):
            now += change
            most = max(most, now)
        found[device] = most
    return found
