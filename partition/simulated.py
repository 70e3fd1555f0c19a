"""What a plan will do, frame by frame: its run simulated as CSDF on devices, links and a host.

Every thread of a run is a processor. A device has two, the *executor*, which runs phases, and the
*I/O thread*; the host has one. They share the CPUs that they may use (`csdf.simulated_machine`).
The actors of the graph, one firing per frame each:

- each phase, on its device's executor;
- *ended*: the I/O thread learns that a firing has ended, sends its tensors and gives back the
  places of what it read;
- *arrived*: the I/O thread of a device that reads takes in the tensors that one firing sent it;
- *credited*: the I/O thread of the producer takes in places given back;
- *link*: what one firing sends to another machine, on the sender's interface and then on the
  receiver's; one after the other, in pieces, so that they overlap as on a real wire;
- the host's source and sink.

Capacities are the plan's: a place is claimed when the firing that fills it begins and free again
when the credit has come back. So the pipeline fills up as a saturated one does, and the latency of
a frame is counted as it is measured: from its departure at the host to its result's arrival.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.from_network import HOST, SINK, SOURCE
from csdf.graph import Actor, Channel, Graph
from csdf.simulated_machine import Machine
from csdf.simulation import Timeline, simulate
from partition.plan import Plan, PlannedChannel
from partition.simulated_costs import RunCosts

NANOSECOND = Fraction(1, 10**9)

AHEAD = 1
"""Firings that wait for a device's executor while it runs one (`nodes.core.actor`)."""

PIECES = 8
"""In how many pieces a message crosses a link."""


@dataclass(frozen=True)
class Prediction:
    """A run as it is predicted; frames in order, seconds since its first frame was at hand.

    `sent_s` and `received_s` are when all inputs of a frame were on their way and when its last
    output had arrived. `fifo_bytes` is the most that each device's incoming FIFOs hold at once.
    `executor_s` and `io_s` are the processor seconds per frame of a device's two threads; the host
    has only the latter.
    """

    sent_s: tuple[float, ...]
    received_s: tuple[float, ...]
    fifo_bytes: Mapping[str, int]
    executor_s: Mapping[str, float]
    io_s: Mapping[str, float]

    @property
    def steady(self) -> int:
        """From this frame on the pipeline is taken to be full."""
        return len(self.received_s) // 3

    @property
    def period_s(self) -> float:
        """Seconds per frame once the pipeline is full."""
        first, last = self.received_s[self.steady], self.received_s[-1]
        return (last - first) / max(1, len(self.received_s) - 1 - self.steady)

    @property
    def latency_s(self) -> float:
        """Median seconds from departure to arrival once the pipeline is full."""
        pairs = zip(self.sent_s, self.received_s, strict=True)
        return statistics.median([received - sent for sent, received in pairs][self.steady :])


def predict(
    plan: Plan,
    costs: RunCosts | None = None,
    *,
    order: Literal["pipelined", "strict"] = "pipelined",
    frames: int | None = None,
) -> Prediction:
    """The first `frames` frames of a run of `plan` with a source that always has the next one.

    Without `frames`, as many as it takes to fill the pipeline several times over.
    """
    costs = costs or RunCosts.assumed(plan.devices)
    if frames is None:
        frames = 48 + 4 * max((phase.skew for phase in plan.phases), default=0)
    built = _Builder(plan, costs)
    orders = {}
    if order == "strict":
        for device in plan.devices:
            own = [phase for phase in plan.phases if phase.device == device.name]
            names = [phase.name for phase in sorted(own, key=lambda phase: phase.index)]
            if names:
                orders[_executor(device.name)] = names
    timeline = simulate(
        built.graph(),
        frames,
        built.on,
        orders,
        machines=built.machines(),
        ahead={_executor(device.name): AHEAD for device in plan.devices},
        wakes={name: _exact(seconds) for name, seconds in built.wakes.items()},
    )
    worked = {thread: float(time) / frames for thread, time in timeline.worked().items()}
    devices = [device.name for device in plan.devices]
    return Prediction(
        tuple(float(firing.end) for firing in timeline.of(SOURCE)),
        _received(timeline, built, frames),
        _fifo_bytes(timeline, built, plan),
        {device: worked.get(_executor(device), 0.0) for device in devices},
        {device: worked.get(_io(device), 0.0) for device in (HOST, *devices)},
    )


def _executor(device: str) -> str:
    return f"{device} executor"


def _io(device: str) -> str:
    return f"{device} I/O"


def _exact(seconds: float) -> Fraction:
    return round(seconds * 10**9) * NANOSECOND


class _Builder:
    """The graph of a plan's run, and what its actors run on."""

    def __init__(self, plan: Plan, costs: RunCosts) -> None:
        self._plan = plan
        self._costs = costs
        self.on: dict[str, str] = {}
        self.wakes: dict[str, float] = {}
        self._actors: dict[str, Actor] = {}
        self._channels: list[Channel] = []
        self._device = {phase.name: phase.device for phase in plan.phases}
        self._device |= {SOURCE: HOST, SINK: HOST}
        self._sent: dict[tuple[str, str], list[PlannedChannel]] = {}
        self._local: list[PlannedChannel] = []
        for channel in plan.channels:
            if channel.source_device == channel.target_device:
                self._local.append(channel)
            else:
                key = (channel.source, channel.target_device)
                self._sent.setdefault(key, []).append(channel)
        self._returned = self._credits()
        self._threads()
        self._phases()
        self._messages()
        self._places()

    def graph(self) -> Graph:
        """The graph, capacities as channels of places."""
        return Graph(self._plan.network, tuple(self._actors.values()), tuple(self._channels))

    def machines(self) -> list[Machine]:
        """The machines, each with the threads that share its CPUs."""
        return [
            Machine(
                tuple(site.cpus),
                {
                    thread: allowed
                    for device, allowed in site.devices.items()
                    for thread in self._threads_of(device)
                },
                site.speeds,
            )
            for site in self._costs.sites
        ]

    def arrived(self, source: str, target: str) -> str:
        """The actor that takes in at device `target` what phase `source` sent it."""
        return f"{source} arrived at {target}"

    def ended(self, phase: str) -> str:
        """The actor that takes note of the end of a firing of `phase`."""
        return f"{phase} ended"

    def results(self) -> list[str]:
        """The actors after whose firings a result is at the host."""
        return [self.arrived(source, target) for source, target in self._sent if target == HOST]

    # ------------------------------------------------------------ parts

    def _threads_of(self, device: str) -> list[str]:
        threads = [_io(device)]
        if device != HOST and not self._costs.of(device).wire_is_free:
            threads.append(_executor(device))
        return threads

    def _threads(self) -> None:
        for device in (HOST, *(device.name for device in self._plan.devices)):
            costs = self._costs.of(device)
            self.wakes[_io(device)] = costs.wake_s
            if device != HOST:
                self.wakes[_executor(device)] = costs.wake_s

    def _actor(self, name: str, thread: str | None, seconds: float) -> str:
        self._actors[name] = Actor(name, (_exact(seconds),), 1)
        if thread is not None:
            self.on[name] = thread
        return name

    def _connect(self, source: str, target: str, tokens: int = 0, rates: str = "one") -> None:
        produced = PIECES if rates == "split" else 1
        consumed = PIECES if rates == "join" else 1
        name = f"{len(self._channels)}"
        self._channels.append(Channel(name, source, target, (produced,), (consumed,), tokens))

    def _credits(self) -> dict[tuple[str, str], int]:
        """(phase that reads, device that made) → credits that go back when it has ended."""
        found: dict[tuple[str, str], int] = {}
        for (source, _), channels in self._sent.items():
            for channel in channels:
                for target in channel.targets:
                    key = (target, self._device[source])
                    found[key] = found.get(key, 0) + (target == channel.targets[-1])
        return found

    def _phases(self) -> None:
        sends: dict[str, float] = {}
        for (source, _), channels in self._sent.items():
            costs = self._costs.of(self._device[source])
            sends[source] = sends.get(source, 0.0) + costs.sending_s(channels)
        for (target, _), number in self._returned.items():
            costs = self._costs.of(self._device[target])
            sends[target] = sends.get(target, 0.0) + costs.credits_s(number)
        for phase in self._plan.phases:
            costs = self._costs.of(phase.device)
            seconds = phase.predicted_s + costs.executor_s
            self._actor(phase.name, _executor(phase.device), seconds)
            spent = costs.ended_s + sends.get(phase.name, 0.0)
            self._actor(self.ended(phase.name), _io(phase.device), spent)
            self._connect(phase.name, self.ended(phase.name))
        host = self._costs.of(HOST)
        self._actor(SOURCE, _io(HOST), host.source_s + sends.get(SOURCE, 0.0))
        self._actor(SINK, _io(HOST), host.sink_s + sends.get(SINK, 0.0))

    def _after(self, phase: str) -> str:
        """The actor that sends what a phase has made and read."""
        return phase if phase in (SOURCE, SINK) else self.ended(phase)

    def _messages(self) -> None:
        for (source, target), channels in self._sent.items():
            costs = self._costs.of(target)
            taker = self._actor(
                self.arrived(source, target), _io(target), costs.receiving_s(channels)
            )
            self._wire(source, target, sum(channel.tensor.bytes for channel in channels), taker)
            for reader in dict.fromkeys(r for channel in channels for r in channel.targets):
                self._connect(taker, reader)

    def _wire(self, source: str, target: str, size: int, taker: str) -> None:
        ends = self._device[source], target
        made = self._after(source)
        if self._costs.together(*ends):
            self._connect(made, taker)
            return
        for number, (device, way) in enumerate(zip(ends, ("out", "in"), strict=True)):
            seconds = self._costs.link_s(device, size) / PIECES
            hop = self._actor(f"{source} to {target}, {way}", f"{device} {way}", seconds)
            self._connect(made, hop, rates="one" if number else "split")
            made = hop
        self._connect(made, taker, rates="join")

    def _places(self) -> None:
        room: dict[tuple[str, str], int] = {}
        for channel in self._plan.channels:
            for target in channel.targets:
                key = (channel.source, target)
                room[key] = min(room.get(key, channel.capacity_frames), channel.capacity_frames)
        for (target, device), number in self._returned.items():
            if not number:
                continue
            costs = self._costs.of(device)
            name = f"{device} credited by {target}"
            self._connect(
                self._after(target), self._actor(name, _io(device), costs.credits_s(number))
            )
        local = {(c.source, target) for c in self._local for target in c.targets}
        for (source, target), frames in room.items():
            if (source, target) in local:
                self._connect(source, target)
                self._connect(target, source, frames)
            else:
                device = self._device[source]
                credited = f"{device} credited by {target}"
                back = credited if credited in self._actors else self._after(target)
                self._connect(back, source, frames)


def _received(timeline: Timeline, built: _Builder, frames: int) -> tuple[float, ...]:
    ends = [0.0] * frames
    for actor in built.results():
        for number, firing in enumerate(timeline.of(actor)):
            ends[number] = max(ends[number], float(firing.end))
    return tuple(ends)


def _fifo_bytes(timeline: Timeline, built: _Builder, plan: Plan) -> dict[str, int]:
    """Device → the most that its incoming FIFOs hold, from arrival to the end of the last reader.

    What passes between two phases of the device is held from the end of the firing that makes it.
    """
    changes: dict[str, list[tuple[Fraction, int]]] = {device.name: [] for device in plan.devices}
    for channel in plan.channels:
        if channel.target_device == HOST:
            continue
        local = channel.is_local
        came = (
            built.ended(channel.source)
            if local
            else built.arrived(channel.source, channel.target_device)
        )
        readers = [timeline.of(built.ended(target)) for target in channel.targets]
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
