"""Prediction of a plan's run by simulation on threads, machines and links.

The closed forms of `partition.prediction.timing` say what a plan can reach. A run also depends on
how threads share CPUs, on which phase a device fires first, and on how full FIFOs get. So the run
is simulated as a CSDF graph whose source always has the next frame. The latency of a frame is
counted as it is measured: from its departure at the host to its result's arrival.

Every thread of a run is a processor. A device has three: the *executor*, which runs phases, the
*I/O thread*, which decides, and the *wire thread* (ZeroMQ's), which moves bytes. The host has the
last two. They share the CPUs that they may use (`csdf.execution.shared_machine`). The actors of the
graph, one firing per frame each, are:

- each phase, on its device's executor;
- *ended*: after a firing, the I/O thread passes its tensors on and returns the places of its
  inputs;
- *sending* and *receiving*: wire threads move the tensors of one firing to another device, large
  messages in pieces, so that both ends and the links between them work at the same time;
- *out* and *in*: transfers to another machine, on the sender's interface and then the receiver's;
- *arrived*: the I/O thread of the receiving device processes the tensors of one firing;
- *credited*: the I/O thread of the producer processes returned places;
- the host's source and sink. If frames are dealt out to copies of the network, these have a phase
  for each frame of a cycle, and tokens go only to and from the copy whose turn it is.

- *released*: a frame of a channel whose producer has its own places has one of the consumer's.

Capacities are the plan's: a place is claimed when the firing that fills it begins, and free again
when the credit has arrived. Where producers have their own places, a firing claims one of these,
which is free again when the frame has left.
"""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.conversion.from_network import HOST, SINK, SOURCE
from csdf.execution.shared_machine import Machine, Platform
from csdf.execution.simulation import Timeline, simulate
from csdf.model.graph import Actor, Channel, Graph
from partition.plan import Plan, PlannedChannel
from partition.prediction.timing import encoding_seconds
from partition.pricing.run_costs import RunCosts

NANOSECOND = Fraction(1, 10**9)

USUAL_SLICE = Fraction(28, 10_000)
SHORT_SLICE = Fraction(1, 10_000)
"""Seconds for which a thread may keep a CPU that others wait for: the usual value of Linux for two
to four CPUs, and the value that agents request (`nodes.host.time_slice`)."""

MOST_TURNS = 20
"""The most turns that a firing is divided into, so that long firings simulate quickly."""

LARGE_BYTES = 1 << 16
PIECES = 4
"""The number of pieces of a message of `LARGE_BYTES` or more, or of one that crosses a link."""


def executor(device: str) -> str:
    """Return the processor that runs the phases of a device."""
    return f"{device} executor"


def io_thread(device: str) -> str:
    """Return the processor of a device, or of the host, that serves the network."""
    return f"{device} I/O"


def wire_thread(device: str) -> str:
    """Return the processor of a device, or of the host, that reads and writes its connections."""
    return f"{device} wire"


def arrived(source: str, target: str) -> str:
    """Return the actor that receives, at device `target`, the tensors from phase `source`."""
    return f"{source} arrived at {target}"


def _released(source: str, target: str) -> str:
    """Return the actor that lets tensors of `source` go to device `target`."""
    return f"{source} released to {target}"


def ended(phase: str) -> str:
    """Return the actor that handles the end of a firing of `phase` (the host's: `phase`)."""
    return phase if phase in (SOURCE, SINK) else f"{phase} ended"


def exact(seconds: float) -> Fraction:
    """Return `seconds` as a fraction, rounded to whole nanoseconds."""
    return round(seconds * 10**9) * NANOSECOND


class RunGraph:
    """The graph of a plan's run; `processors` maps its actors to the processors they run on."""

    def __init__(self, plan: Plan, costs: RunCosts) -> None:
        self.processors: dict[str, str] = {}
        self._plan = plan
        self._copy = {phase.device: phase.copy for phase in plan.phases}
        self._costs = costs
        self._actors: dict[str, Actor] = {}
        self._longest: dict[str, Fraction] = {}
        self._channels: list[Channel] = []
        self._device = {phase.name: phase.device for phase in plan.phases}
        self._device |= {SOURCE: HOST, SINK: HOST}
        self._sent: dict[tuple[str, str], list[PlannedChannel]] = {}
        for channel in plan.channels:
            if not channel.is_local:
                key = (channel.source, channel.target_device)
                self._sent.setdefault(key, []).append(channel)
        self._unsent = {
            key: min(channel.unsent_frames for channel in channels if channel.unsent_frames)
            for key, channels in self._sent.items()
            if any(channel.unsent_frames for channel in channels)
        }
        self._returned = self._credits()
        self._add_phases()
        self._add_messages()
        self._add_credits()
        self._add_places()

    def graph(self) -> Graph:
        """Return the graph, with channels of places for capacities."""
        return Graph(self._plan.network, tuple(self._actors.values()), tuple(self._channels))

    def machines(self) -> tuple[Machine, ...]:
        """Return the machines, each with the threads that share its CPUs."""
        return tuple(
            Machine(
                tuple(site.cpus),
                {
                    thread: cpus
                    for device, cpus in site.devices.items()
                    for thread in self._sharing(device)
                },
                {
                    thread: self._slice(device, thread)
                    for device in site.devices
                    for thread in self._sharing(device)
                },
                site.speeds,
                exact(self._costs.rouse_s),
            )
            for site in self._costs.sites
        )

    def _slice(self, device: str, thread: str) -> Fraction:
        usual = device == HOST or thread == executor(device)
        longest = self._longest.get(thread, Fraction(0))
        return max(USUAL_SLICE if usual else SHORT_SLICE, longest / MOST_TURNS)

    def wakes(self) -> dict[str, Fraction]:
        """Return by thread the seconds that it takes to begin to work after it has waited."""
        wakes = {}
        for device in (HOST, *(device.name for device in self._plan.devices)):
            wakes[io_thread(device)] = wakes[executor(device)] = exact(
                self._costs.of(device).wake_s
            )
        return wakes

    def ranks(self) -> dict[str, int]:
        """Return by actor of an I/O thread its turn when several are ready.

        The actors that a poll finds come first, then the others in the order of arrival. Wire
        threads serve connections side by side, so that an old frame does not wait for the large
        tensors of a younger one.
        """
        taken = (arrived(source, target) for source, target in self._sent)
        ranks = dict.fromkeys(taken, 0)
        ranks |= {ended(phase.name): 1 for phase in self._plan.phases}
        ranks |= {_credited(t, device): 2 * (device != HOST) for t, device in self._returned}
        return ranks | {SOURCE: 1, SINK: 2}

    def results(self) -> dict[int, list[str]]:
        """Return by copy of the network the actors whose firings bring its result to the host."""
        found: dict[int, list[str]] = {}
        for source, target in self._sent:
            if target == HOST:
                copy = self._copy[self._device[source]]
                found.setdefault(copy, []).append(arrived(source, target))
        return found or {0: [SOURCE]}  # an input that is itself a result

    def _sharing(self, device: str) -> list[str]:
        if device == HOST or self._costs.of(device).wire_is_free:
            return [io_thread(device), wire_thread(device)]
        return [io_thread(device), wire_thread(device), executor(device)]

    # ------------------------------------------------------------ parts

    def _actor(self, name: str, processor: str, *seconds: float) -> str:
        times = tuple(map(exact, seconds))
        self._actors[name] = Actor(name, times, 1)
        self.processors[name] = processor
        self._longest[processor] = max(self._longest.get(processor, times[0]), *times)
        return name

    def _copy_at(self, *devices: str) -> int:
        """Return the copy of the network on that one of these devices that is not the host."""
        return next(self._copy[device] for device in devices if device != HOST)

    def _connect(
        self,
        source: str,
        target: str,
        tokens: int = 0,
        *,
        gives: int = 1,
        takes: int = 1,
        copy: int = 0,
    ) -> None:
        """Add a channel; `copy` is its copy of the network if an end is at the host."""
        name = str(len(self._channels))
        rates = self._rates(source, gives, copy), self._rates(target, takes, copy)
        self._channels.append(Channel(name, source, target, *rates, tokens))

    def _rates(self, actor: str, rate: int, copy: int) -> tuple[int, ...]:
        if actor in (SOURCE, SINK):
            return tuple(rate * (dealt == copy) for dealt in self._plan.dealing)
        return (rate,)

    def _credits(self) -> dict[tuple[str, str], int]:
        """Return by (reading phase, producing device) the credits due when the phase has ended."""
        found: dict[tuple[str, str], int] = {}
        for (source, _), channels in self._sent.items():
            for channel in channels:
                for target in channel.targets:
                    key = (target, self._device[source])
                    found[key] = found.get(key, 0) + (target == channel.targets[-1])
        return {key: number for key, number in found.items() if number}

    def _add_phases(self) -> None:
        sends: defaultdict[tuple[str, int], float] = defaultdict(float)
        at_once = [(*key, len(channels)) for key, channels in self._sent.items()]
        at_once += [(*key, number) for key, number in self._returned.items()]
        for actor, to, number in at_once:
            device = self._device[actor]
            sends[actor, self._copy_at(device, to)] += self._costs.of(device).message_s(number)
        encoding = encoding_seconds(self._plan.devices, self._plan.channels)
        for phase in sorted(self._plan.phases, key=lambda phase: -phase.index):
            costs = self._costs.of(phase.device)
            seconds = phase.predicted_s + encoding.get(phase.name, 0.0) + costs.executor_s
            self._actor(phase.name, executor(phase.device), seconds)
            seconds = costs.ended_s + sends[phase.name, phase.copy]
            self._actor(ended(phase.name), io_thread(phase.device), seconds)
            self._connect(phase.name, ended(phase.name))
        host = self._costs.of(HOST)
        frames = self._plan.batch
        for actor, seconds in ((SOURCE, frames * host.source_s), (SINK, frames * host.sink_s)):
            each = (seconds + sends[actor, copy] for copy in self._plan.dealing)
            self._actor(actor, io_thread(HOST), *each)

    def _add_messages(self) -> None:
        for (source, target), channels in self._sent.items():
            size = sum(channel.wire_bytes for channel in channels)
            taker = arrived(source, target)
            self._add_way(source, (self._device[source], target), taker, len(channels), size)
            copy = self._copy_at(self._device[source], target)
            for reader in dict.fromkeys(r for channel in channels for r in channel.targets):
                self._connect(taker, reader, copy=copy)

    def _add_credits(self) -> None:
        for (target, device), number in self._returned.items():
            taker = _credited(target, device)
            self._add_way(target, (self._device[target], device), taker, number, 0)

    def _add_way(
        self, source: str, ends: tuple[str, str], taker: str, number: int, size: int
    ) -> None:
        """Connect `source` to `taker`, which receives its `number` tensors or credits (`size` bytes
        in all).
        """
        crosses = bool(size) and not self._costs.together(*ends)
        pieces = PIECES if size >= LARGE_BYTES or crosses else 1
        one, other = (self._costs.of(device) for device in ends)
        sending_s = one.wire_s + size * one.sent_byte_s
        receiving_s = other.wire_s + size * other.received_byte_s
        steps = [(f"{taker}: sending", wire_thread(ends[0]), sending_s)]
        if crosses:
            steps += [
                (f"{taker}: {way}", f"{device} {way}", self._costs.link_s(device, size))
                for device, way in zip(ends, ("out", "in"), strict=True)
            ]
        steps.append((f"{taker}: receiving", wire_thread(ends[1]), receiving_s))
        before, gives = ended(source), pieces
        unsent = self._unsent.get((source, ends[1]), 0) if size else 0
        if unsent:
            before = _released(source, ends[1])
            self._actors[before] = Actor(before, (Fraction(0),), 1)
            self._connect(ended(source), before)
        for actor, processor, seconds in steps:
            self._actor(actor, processor, seconds / pieces)
            self._connect(before, actor, gives=gives, copy=self._copy_at(*ends))
            before, gives = actor, 1
        if unsent:
            left = steps[int(crosses)][0]
            self._connect(left, source, unsent * pieces, takes=pieces, copy=self._copy_at(*ends))
        self._actor(taker, io_thread(ends[1]), other.message_s(number))
        self._connect(before, taker, takes=pieces)

    def _add_places(self) -> None:
        room: dict[tuple[str, str, str], int] = {}
        for channel in self._plan.channels:
            taker = channel.source
            if channel.unsent_frames:
                taker = _released(channel.source, channel.target_device)
            for target in channel.targets:
                key, frames = (channel.source, target, taker), channel.consumer_frames
                room[key] = min(room.get(key, frames), frames)
        for (source, target, taker), frames in room.items():
            device, reader = self._device[source], self._device[target]
            if reader == device:
                self._connect(source, target)
                self._connect(target, source, frames)
                continue
            giver = ended(target)  # unless a later reader on that device returns the place
            if (target, device) in self._returned:
                giver = _credited(target, device)
            self._connect(giver, taker, frames, copy=self._copy_at(device, reader))


def _credited(target: str, device: str) -> str:
    return f"{device} credited by {target}"


AHEAD = 1
"""The most firings that wait for a device's executor while it runs one (`nodes.core.actor`)."""

EXECUTOR_SPREAD = Fraction(1, 10)
IO_SPREAD = Fraction(1)
"""The largest relative deviation of a phase, or of serving the network, from its usual time."""


@dataclass(frozen=True)
class Prediction:
    """The predicted run: frames in order, in seconds from the moment its first frame is available.

    `sent_s` and `received_s` are the times at which all inputs of a frame had departed and its last
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
    """The number of frames after which the pattern that deals frames out to copies recurs."""

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
    """Return the frames that arrived while the pipeline was full, at least two of two or more.

    These are the frames without the first third, while the pipeline fills, and without those that
    arrive after the last departure, while it empties.
    """
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
    """Predict the first `frames` frames of a run of `plan`.

    Without `frames`, the run fills the pipeline several times over; without `costs`, the usual
    costs apply. If `even`, every step takes exactly its usual time. Raises
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
    """Return by executor its phases by their index, for each frame of a cycle that it gets."""
    turns: dict[str, list[str]] = {}
    for phase in sorted(plan.phases, key=lambda phase: phase.index):
        turns.setdefault(executor(phase.device), []).append(phase.name)
    copy = {executor(phase.device): phase.copy for phase in plan.phases}
    return {thread: own * plan.dealing.count(copy[thread]) for thread, own in turns.items()}


def _received_s(
    timeline: Timeline, results: Mapping[int, list[str]], dealing: Sequence[int], frames: int
) -> tuple[float, ...]:
    """Return when each frame and all before it had arrived: results are taken in frame order."""
    ends = {copy: zip(*map(timeline.of, actors), strict=True) for copy, actors in results.items()}
    firings = (next(ends[dealing[frame % len(dealing)]]) for frame in range(frames))
    there = (max(float(firing.end) for firing in own) for own in firings)
    return tuple(itertools.accumulate(there, max))


def _fifo_bytes(timeline: Timeline, plan: Plan) -> dict[str, int]:
    """Return by device the most bytes in its incoming FIFOs, counted as in `nodes.core.fifo`."""
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
            held.append((firing.end, channel.wire_bytes))
            held.append((max(read[number].end for read in readers), -channel.wire_bytes))
    found = {}
    for device, events in changes.items():
        most = now = 0
        for _, change in sorted(events):
            now += change
            most = max(most, now)
        found[device] = most
    return found
