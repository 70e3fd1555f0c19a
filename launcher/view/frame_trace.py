"""Follows single frames through a run: when each was pushed, sent, computed by whom, and taken.

Only traced frames carry a `FrameTrace`; all others cost nothing here. Agents keep the times of
their last firings anyway while a run is followed (`nodes.execution.trace`). Once a followed frame
is taken, they are asked for its firings, which are assigned to it by epoch, phase and frame number.
Clocks are compared as for `launch --trace` (`launcher.core.clocks`).
"""

from __future__ import annotations

import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import ClassVar

from launcher.core.blueprint import Blueprint
from launcher.core.clocks import RoundTrip, estimate
from nodes.protocol.messages import (
    HOST,
    TRACE_EVENT,
    ChannelSpec,
    Control,
    GetTrace,
    Start,
    Stop,
    Traced,
    TraceKind,
)

MOST_FOLLOWED = 256
"""Frames that are followed at a time; a further one is not."""

AT_ONCE = 8
"""The number of first requests to an agent, which follow each other immediately: round trips that
compare the clocks."""

MOST_TRIPS = 64
"""The last round trips, from which a clock is estimated."""

ANSWERS_S = 2.0
"""How long agents may take to send the firings of a frame; then it is complete without them."""

_EVENT = struct.Struct(TRACE_EVENT)


@dataclass(frozen=True, slots=True)
class FollowedFiring:
    """A phase that computed the frame; times are of the launcher's monotonic clock.

    Both times may be wrong by `clock_error_s`, since the node's clock was compared by round trips.
    """

    node: str
    phase: str
    began_s: float
    ended_s: float
    clock_error_s: float = 0.0


@dataclass
class FrameTrace:
    """One frame's way; times are of the launcher's monotonic clock, 0.0 while not known.

    A frame that was sent again after a loss has the times of the last time. `complete` is done once
    `firings` has all that agents have said.
    """

    pushed_s: float = field(default_factory=time.monotonic)
    sent_s: float = 0.0
    taken_s: float = 0.0
    frame: int = 0
    """Its number in its copy of the network, in this epoch."""
    blueprint: Blueprint | None = None
    copy: int = 0
    firings: tuple[FollowedFiring, ...] = ()
    complete: Future[None] = field(default_factory=Future)

    def sent(self, blueprint: Blueprint, copy: int, frame: int) -> None:
        """Note that it is sent now, as this frame of a copy of its network, whose channels
        `blueprint` has."""
        self.sent_s = time.monotonic()
        self.blueprint, self.copy, self.frame = blueprint, copy, frame


@dataclass
class AskedAgent:
    """The requests to one agent since its epoch began, and the round trips of their answers.

    `number` and `sent_s` are of the latest request, which `is_waiting` for its answer or not;
    `first` is the number of the epoch's first request.
    """

    number: int = 0
    first: int = 1
    is_waiting: bool = False
    sent_s: float = 0.0
    trips: deque[RoundTrip] = field(default_factory=deque)


class TraceRequests(ABC):
    """Asks agents for what they have recorded; the run's thread sends the requests.

    The last `most_trips` round trips of an agent are kept; all, if that is None. `every_s` is the
    least time between two later requests to it.
    """

    most_trips: ClassVar[int | None] = None
    every_s: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self._agents: dict[str, AskedAgent] = {}

    def begin(self, node: str) -> GetTrace:
        """Return the first request of an epoch; answers to earlier ones are ignored from now."""
        number = self._agents[node].number if node in self._agents else 0
        trips: deque[RoundTrip] = deque(maxlen=self.most_trips)
        self._agents[node] = AskedAgent(number, number + 1, trips=trips)
        return self.ask(node)

    def ask(self, node: str) -> GetTrace:
        """Return a request, which the caller sends to the node now."""
        agent = self._agents[node]
        agent.number += 1
        agent.is_waiting, agent.sent_s = True, time.monotonic()
        return GetTrace(agent.number, self._wanted(node))

    def _answered(self, node: str, answer: Traced) -> AskedAgent | None:
        """Add an answer's round trip; return its agent if it is of the present epoch."""
        agent = self._agents.get(node)
        if agent is None or answer.number < agent.first:
            return None
        if agent.is_waiting and answer.number == agent.number:
            agent.is_waiting = False
            agent.trips.append(RoundTrip(agent.sent_s, answer.now_s, time.monotonic()))
        return agent

    def _wanted(self, node: str) -> tuple[int, ...]:  # noqa: ARG002
        """The frames to ask a node for; empty for all."""
        return ()

    @abstractmethod
    def before(self, node: str, message: Control) -> GetTrace | None:
        """Return the request to send before `message`, if any."""

    def _is_wanted(self, node: str) -> bool:  # noqa: ARG002
        """Whether to ask a node for more than its clock."""
        return True

    def due(self, now_s: float) -> list[str]:
        """Return the nodes to ask now."""
        return [
            node
            for node, agent in self._agents.items()
            if not agent.is_waiting
            and (
                len(agent.trips) < AT_ONCE
                or (self._is_wanted(node) and now_s >= agent.sent_s + self.every_s)
            )
        ]

    @abstractmethod
    def receive(self, node: str, answer: Traced) -> None:
        """Handle an answer."""


@dataclass
class _Taken:
    """A frame whose result was taken, and the firings that agents have sent of it."""

    trace: FrameTrace
    silent: set[str]
    until_s: float
    found: dict[tuple[str, int], FollowedFiring] = field(default_factory=dict)


class FrameTracer(TraceRequests):
    """Asks agents for the firings of frames that were taken; the run's thread calls all of this."""

    most_trips = MOST_TRIPS
    every_s = 0.1

    def __init__(self) -> None:
        super().__init__()
        self._taken: deque[_Taken] = deque()

    # ------------------------------------------------------------ frames

    def took(self, trace: FrameTrace) -> None:
        """Note that the frame's result was taken, at `trace.taken_s`."""
        if trace.blueprint is None or len(self._taken) >= MOST_FOLLOWED:
            trace.complete.set_result(None)
            return
        nodes = {node for node, _ in phases_of(trace.blueprint, trace.copy)} & self._agents.keys()
        self._taken.append(_Taken(trace, nodes, trace.taken_s + ANSWERS_S))

    def close(self) -> None:
        """End the trace: the run has ended."""
        while self._taken:
            self._finish(self._taken.popleft())

    def _finish(self, taken: _Taken) -> None:
        firings = sorted(taken.found.values(), key=lambda firing: firing.began_s)
        taken.trace.firings = tuple(firings)
        taken.trace.complete.set_result(None)

    # ------------------------------------------------------------ requests

    def before(self, node: str, message: Control) -> GetTrace | None:
        """Return the request to send before `message`, if any: agents record from `Start` on."""
        if isinstance(message, Start):
            return self.begin(node)
        if isinstance(message, Stop):
            self._agents.pop(node, None)
            for taken in self._taken:
                taken.silent.discard(node)
        return None

    def _wanted(self, node: str) -> tuple[int, ...]:
        frames = {taken.trace.frame for taken in self._taken if node in taken.silent}
        return tuple(sorted(frames)) or NO_FRAME

    def due(self, now_s: float) -> list[str]:
        """Return the nodes to ask now, and complete the frames that have waited long enough."""
        while self._taken and (not self._taken[0].silent or now_s >= self._taken[0].until_s):
            self._finish(self._taken.popleft())
        return super().due(now_s)

    def _is_wanted(self, node: str) -> bool:
        return any(node in taken.silent for taken in self._taken)

    def receive(self, node: str, answer: Traced) -> None:
        """Handle an answer."""
        agent = self._answered(node, answer)
        if agent is None or answer.number != agent.number:
            return
        clock = estimate(agent.trips)
        usable = len(answer.events) - len(answer.events) % _EVENT.size
        fired: dict[int, list[tuple[int, float, float]]] = {}
        for began_s, took_s, frame, number, kind in _EVENT.iter_unpack(answer.events[:usable]):
            if kind == TraceKind.FIRED:
                fired.setdefault(frame, []).append((number, clock.ours(began_s), took_s))
        for taken in self._taken:
            if node not in taken.silent or taken.trace.taken_s > agent.sent_s:
                continue
            taken.silent.discard(node)
            events = fired.get(taken.trace.frame, ())
            for number, firing in self._own(taken.trace, node, events, clock.error_s):
                taken.found[node, number] = firing

    def _own(
        self,
        trace: FrameTrace,
        node: str,
        events: Sequence[tuple[int, float, float]],
        clock_error_s: float,
    ) -> Iterator[tuple[int, FollowedFiring]]:
        """The firings that computed this frame; others have its number in another copy, network or
        epoch."""
        if trace.blueprint is None:
            return
        own = phases_of(trace.blueprint, trace.copy)
        phases = trace.blueprint.deployments[node].phases
        for number, began_s, took_s in events:
            name, ended_s = phases[number].name, began_s + took_s
            if (node, number) in own and ended_s + clock_error_s >= trace.sent_s:
                yield number, FollowedFiring(node, name, began_s, ended_s, clock_error_s)


NO_FRAME = (0,)
"""The frames to ask for where only the clocks are compared: one, not all of them."""


def phases_of(blueprint: Blueprint, copy: int) -> set[tuple[str, int]]:
    """The phases that the host's frames reach in a copy of the network, by node and index."""
    after: dict[tuple[str, int | None], list[ChannelSpec]] = {}
    for deployment in blueprint.deployments.values():
        for channel in deployment.channels:
            after.setdefault((channel.source_node, channel.source_phase), []).append(channel)
    dealing = blueprint.dealing
    due = [c for c in blueprint.from_host if dealing.channel_copy(c.number) == copy]
    found: set[tuple[str, int]] = set()
    while due:
        channel = due.pop()
        if channel.target_node == HOST:
            continue
        for phase in channel.target_phases:
            place = (channel.target_node, phase)
            if place not in found:
                found.add(place)
                due += after.get(place, ())
    return found
