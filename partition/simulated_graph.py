"""The CSDF graph of a plan's run: phases, messages, credits, links, and what they run on.

Every thread of a run is a processor. A device has two, the *executor*, which runs phases, and the
*I/O thread*; the host has one. They share the CPUs that they may use (`csdf.simulated_machine`).
The actors of the graph, one firing per frame each:

- each phase, on its device's executor;
- *ended*: the I/O thread learns that a firing has ended, sends its tensors and gives back the
  places of what it read;
- *arrived*: the I/O thread of a device that reads takes in the tensors that one firing sent it;
- *credited*: the I/O thread of the producer takes in places given back;
- *flight*: the time that messages need besides, without a thread of ours at work;
- *out* and *in*: what one firing sends to another machine, on the sender's interface and then on
  the receiver's; one after the other, in pieces, so that they overlap as on a real wire;
- the host's source and sink.

Capacities are the plan's: a place is claimed when the firing that fills it begins, and free again
when the credit has come back.
"""

from __future__ import annotations

from fractions import Fraction

from csdf.from_network import HOST, SINK, SOURCE
from csdf.graph import Actor, Channel, Graph
from csdf.simulated_machine import Machine
from partition.plan import Plan, PlannedChannel
from partition.simulated_costs import RunCosts

NANOSECOND = Fraction(1, 10**9)

PIECES = 4
"""In how many pieces a message crosses a link."""


def executor(device: str) -> str:
    """The processor of a device that runs its phases."""
    return f"{device} executor"


def io_thread(device: str) -> str:
    """The processor of a device, or of the host, that serves the network."""
    return f"{device} I/O"


def arrived(source: str, target: str) -> str:
    """The actor that takes in at device `target` what phase `source` sent it."""
    return f"{source} arrived at {target}"


def ended(phase: str) -> str:
    """The actor that takes note of the end of a firing of `phase`; the host's are their own."""
    return phase if phase in (SOURCE, SINK) else f"{phase} ended"


def exact(seconds: float) -> Fraction:
    """To whole nanoseconds."""
    return round(seconds * 10**9) * NANOSECOND


class RunGraph:
    """The graph of a plan's run; `processors` says what its actors run on."""

    def __init__(self, plan: Plan, costs: RunCosts) -> None:
        self.processors: dict[str, str] = {}
        self._plan = plan
        self._costs = costs
        self._actors: dict[str, Actor] = {}
        self._channels: list[Channel] = []
        self._device = {phase.name: phase.device for phase in plan.phases}
        self._device |= {SOURCE: HOST, SINK: HOST}
        self._sent: dict[tuple[str, str], list[PlannedChannel]] = {}
        for channel in plan.channels:
            if not channel.is_local:
                key = (channel.source, channel.target_device)
                self._sent.setdefault(key, []).append(channel)
        self._returned = self._credits()
        self._add_phases()
        self._add_messages()
        self._add_credits()
        self._add_places()

    def graph(self) -> Graph:
        """The graph, with channels of places for capacities."""
        return Graph(self._plan.network, tuple(self._actors.values()), tuple(self._channels))

    def machines(self) -> tuple[Machine, ...]:
        """The machines, each with the threads that share its CPUs."""
        return tuple(
            Machine(
                tuple(site.cpus),
                {
                    thread: cpus
                    for device, cpus in site.devices.items()
                    for thread in self._sharing(device)
                },
                site.speeds,
            )
            for site in self._costs.sites
        )

    def wakes(self) -> dict[str, Fraction]:
        """Thread → what it takes to begin to work after having waited."""
        wakes = {}
        for device in (HOST, *(device.name for device in self._plan.devices)):
            wakes[io_thread(device)] = wakes[executor(device)] = exact(
                self._costs.of(device).wake_s
            )
        return wakes

    def results(self) -> list[str]:
        """The actors after whose firings a result is at the host."""
        found = [arrived(source, target) for source, target in self._sent if target == HOST]
        return found or [SOURCE]  # what goes in comes out as it is

    def _sharing(self, device: str) -> list[str]:
        if device == HOST or self._costs.of(device).wire_is_free:
            return [io_thread(device)]
        return [io_thread(device), executor(device)]

    # ------------------------------------------------------------ parts

    def _actor(self, name: str, processor: str | None, seconds: float) -> str:
        self._actors[name] = Actor(name, (exact(seconds),), None if processor is None else 1)
        if processor is not None:
            self.processors[name] = processor
        return name

    def _connect(
        self, source: str, target: str, tokens: int = 0, *, gives: int = 1, takes: int = 1
    ) -> None:
        name = str(len(self._channels))
        self._channels.append(Channel(name, source, target, (gives,), (takes,), tokens))

    def _credits(self) -> dict[tuple[str, str], int]:
        """(phase that reads, device that made) → credits that go back when it has ended."""
        found: dict[tuple[str, str], int] = {}
        for (source, _), channels in self._sent.items():
            for channel in channels:
                for target in channel.targets:
                    key = (target, self._device[source])
                    found[key] = found.get(key, 0) + (target == channel.targets[-1])
        return {key: number for key, number in found.items() if number}

    def _add_phases(self) -> None:
        sends = dict.fromkeys(self._device, 0.0)
        for (source, _), channels in self._sent.items():
            sends[source] += self._costs.of(self._device[source]).sending_s(channels)
        for (target, _), number in self._returned.items():
            sends[target] += self._costs.of(self._device[target]).credits_s(number)
        for phase in self._plan.phases:
            costs = self._costs.of(phase.device)
            seconds = phase.predicted_s + costs.executor_s
            self._actor(phase.name, executor(phase.device), seconds)
            seconds = costs.ended_s + sends[phase.name]
            self._actor(ended(phase.name), io_thread(phase.device), seconds)
            self._connect(phase.name, ended(phase.name))
        host = self._costs.of(HOST)
        self._actor(SOURCE, io_thread(HOST), host.source_s + sends[SOURCE])
        self._actor(SINK, io_thread(HOST), host.sink_s + sends[SINK])

    def _add_messages(self) -> None:
        for (source, target), channels in self._sent.items():
            size = sum(channel.tensor.bytes for channel in channels)
            seconds = self._costs.of(target).receiving_s(channels)
            taker = self._actor(arrived(source, target), io_thread(target), seconds)
            self._add_way(source, target, size, taker)
            for reader in dict.fromkeys(r for channel in channels for r in channel.targets):
                self._connect(taker, reader)

    def _add_way(self, source: str, target: str, size: int, taker: str) -> None:
        ends = self._device[source], target
        flight = f"{source} to {target}, flight"
        self._actor(flight, None, self._costs.of(ends[0]).flight_s)
        if self._costs.together(*ends):
            self._connect(ended(source), flight)
        else:
            out, into = (
                self._actor(
                    f"{source} to {target}, {way}",
                    f"{device} {way}",
                    self._costs.link_s(device, size) / PIECES,
                )
                for device, way in zip(ends, ("out", "in"), strict=True)
            )
            self._connect(ended(source), out, gives=PIECES)
            self._connect(out, into)
            self._connect(into, flight, takes=PIECES)
        self._connect(flight, taker)

    def _add_credits(self) -> None:
        for (target, device), number in self._returned.items():
            costs = self._costs.of(device)
            flight = self._actor(f"{target} back to {device}, flight", None, costs.flight_s)
            taker = _credited(target, device)
            self._actor(taker, io_thread(device), costs.credits_s(number))
            self._connect(ended(target), flight)
            self._connect(flight, taker)

    def _add_places(self) -> None:
        room: dict[tuple[str, str], int] = {}
        for channel in self._plan.channels:
            for target in channel.targets:
                key = (channel.source, target)
                room[key] = min(room.get(key, channel.capacity_frames), channel.capacity_frames)
        for (source, target), frames in room.items():
            device = self._device[source]
            if self._device[target] == device:
                self._connect(source, target)
                self._connect(target, source, frames)
            elif (target, device) in self._returned:
                self._connect(_credited(target, device), source, frames)
            else:  # a later reader on that device gives the place back
                self._connect(ended(target), source, frames)


def _credited(target: str, device: str) -> str:
    return f"{device} credited by {target}"
