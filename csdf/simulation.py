"""Self-timed execution of some iterations on processors: what happens when, exactly.

Every actor fires as soon as its tokens and places are there and its processor is free. A processor
(a device, or a link) runs one firing at a time. If several actors could fire on it, the one with
the oldest iteration goes first, as on the agents, then the one named first in the graph; or it
keeps to a static order. Actors without a processor only wait for tokens and places.

A link is an actor too: `with_links` puts one into a channel, which carries the tokens of each
firing in one go and takes time for it, on a processor that several channels may share.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from csdf.consistency import repetition_vector
from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.graph import Actor, Channel, Graph
from csdf.lowered import Origin, lower, neighbours

FIRING_LIMIT = 2_000_000
"""Firings that are simulated at most."""


@dataclass(frozen=True, slots=True)
class Firing:
    """One firing: phase and iteration count from 0; `row` is its processor, or its actor."""

    actor: str
    phase: int
    iteration: int
    row: str
    start: Fraction
    end: Fraction


@dataclass(frozen=True)
class Timeline:
    """The firings, in the order of their starts, and when each iteration was complete."""

    firings: tuple[Firing, ...]
    completed: tuple[Fraction, ...]

    @property
    def end(self) -> Fraction:
        """When the last firing ended."""
        return max(self.completed, default=Fraction(0))

    def busy(self) -> dict[str, Fraction]:
        """Row → the time of all its firings, overlapping ones counted twice."""
        found: dict[str, Fraction] = {}
        for firing in self.firings:
            found[firing.row] = found.get(firing.row, Fraction(0)) + firing.end - firing.start
        return found


@dataclass(frozen=True, slots=True)
class Link:
    """What carries a channel: a processor, the time per firing, and that per token."""

    processor: str
    time: Fraction = Fraction(0)
    time_per_token: Fraction = Fraction(0)


@dataclass(slots=True)
class _Processor:
    order: tuple[int, ...] | None
    busy: bool = False
    next: int = 0
    ready: list[tuple[int, int]] = field(default_factory=list)
    """(iteration, actor), as a heap; in a static order just the actors that could fire."""

    def take(self) -> int | None:
        """The actor to fire now, which is then no longer ready."""
        if self.busy or not self.ready:
            return None
        if self.order is None:
            return heapq.heappop(self.ready)[1]
        wanted = self.order[self.next % len(self.order)]
        for place, (_, actor) in enumerate(self.ready):
            if actor == wanted:
                del self.ready[place]
                self.next += 1
                return actor
        return None


def simulate(
    graph: Graph,
    iterations: int,
    processors: Mapping[str, str] | None = None,
    orders: Mapping[str, Sequence[str]] | None = None,
) -> Timeline:
    """The first `iterations` of `graph`.

    `processors` maps actors to processors; `orders` gives processors a static order, the list of
    actors of one iteration, one name per firing. Raises `InconsistentGraphError`,
    `DeadlockError`, `TooLargeError`, and `CsdfError` if a name is unknown.
    """
    repetitions = repetition_vector(graph)
    total = iterations * sum(repetitions[a.name] * a.phases for a in graph.actors)
    if total > FIRING_LIMIT:
        raise TooLargeError(f"{total} firings are to be simulated; at most {FIRING_LIMIT} can be")
    on = dict(processors or {})
    for processor, order in (orders or {}).items():
        on |= dict.fromkeys(order, processor)
    for name in on:
        if name not in graph.actor:
            raise CsdfError(f"{name!r} is to run on {on[name]!r}, but is no actor of the graph")
    run = _Run(graph, iterations, repetitions, on, orders or {})
    run.all()
    return run.timeline()


def static_orders(graph: Graph, processors: Mapping[str, str]) -> dict[str, list[str]]:
    """An order per processor in which `graph` is live: that of one iteration, simulated.

    Not always the best: which order gives the shortest period is a hard problem. For
    `csdf.schedule.with_orders`, which tells its period. Raises as `simulate` does.
    """
    orders: dict[str, list[str]] = {processor: [] for processor in processors.values()}
    for firing in simulate(graph, 1, processors).firings:
        if firing.actor in processors:
            orders[firing.row].append(firing.actor)
    return orders


class _Run:
    """The state of a simulation."""

    def __init__(
        self,
        graph: Graph,
        iterations: int,
        repetitions: Mapping[str, int],
        on: Mapping[str, str],
        orders: Mapping[str, Sequence[str]],
    ) -> None:
        self._graph = lower(graph)
        number = {name: i for i, name in enumerate(self._graph.names)}
        self._iterations = iterations
        self._per_iteration = [repetitions[a.name] * a.phases for a in graph.actors]
        self._unit = math.lcm(*(t.denominator for times in self._graph.times for t in times))
        self._times = [[int(t * self._unit) for t in times] for times in self._graph.times]
        self._about = neighbours(self._graph)
        self._targets = [arc.target for arc in self._graph.arcs]
        self._tokens = [arc.tokens for arc in self._graph.arcs]
        self._started = [0] * len(number)
        self._completed = [0] * iterations
        self._rows = [on.get(name, name) for name in number]
        self._processors = {
            name: _Processor(tuple(number[a] for a in orders[name]) if name in orders else None)
            for name in dict.fromkeys(on.values())
        }
        self._processor = [self._processors.get(on.get(name, "")) for name in number]
        self._now = 0
        self._ends: list[tuple[int, int, int, int]] = []
        self._found: list[tuple[int, int, int, int]] = []
        self._waiting = deque(range(len(number)))
        self._lacks = [(-1, 0)] * len(number)

    def all(self) -> None:
        """Fires all there is to fire."""
        while True:
            self._instant()
            if not self._ends:
                break
            self._now = self._ends[0][0]
        for actor, started in enumerate(self._started):
            if started < self._iterations * self._per_iteration[actor]:
                raise DeadlockError(self._story())

    def timeline(self) -> Timeline:
        """What has happened."""
        unit, names = self._unit, self._graph.names
        firings = []
        for start, end, actor, number in self._found:
            iteration, phase = divmod(number, self._per_iteration[actor])
            phase %= len(self._times[actor])
            times = Fraction(start, unit), Fraction(end, unit)
            firings.append(Firing(names[actor], phase, iteration, self._rows[actor], *times))
        return Timeline(tuple(firings), tuple(Fraction(end, unit) for end in self._completed))

    def _instant(self) -> None:
        while True:
            while self._ends and self._ends[0][0] == self._now:
                _, _, actor, number = heapq.heappop(self._ends)
                self._end(actor, number)
            while self._waiting:
                self._see(self._waiting.popleft())
            for processor in self._processors.values():
                chosen = processor.take()
                if chosen is not None:
                    processor.busy = True
                    self._start(chosen)
                    self._waiting.append(chosen)
            if not self._waiting and not (self._ends and self._ends[0][0] == self._now):
                return

    def _see(self, actor: int) -> None:
        """Starts what `actor` can, or notes what it waits for."""
        takes, processor = self._about.takes[actor], self._processor[actor]
        while self._started[actor] < self._iterations * self._per_iteration[actor]:
            for arc, rate in takes[self._started[actor] % len(takes)]:
                if self._tokens[arc] < rate:
                    self._lacks[actor] = (arc, rate)
                    return
            if processor is not None:
                iteration = self._started[actor] // self._per_iteration[actor]
                heapq.heappush(processor.ready, (iteration, actor))
                return
            self._start(actor)

    def _start(self, actor: int) -> None:
        number = self._started[actor]
        phase = number % len(self._times[actor])
        for arc, rate in self._about.takes[actor][phase]:
            self._tokens[arc] -= rate
        self._started[actor] += 1
        end = self._now + self._times[actor][phase]
        self._found.append((self._now, end, actor, number))
        heapq.heappush(self._ends, (end, len(self._found), actor, number))

    def _end(self, actor: int, number: int) -> None:
        processor = self._processor[actor]
        if processor is not None:
            processor.busy = False
        iteration = number // self._per_iteration[actor]
        self._completed[iteration] = max(self._completed[iteration], self._now)
        for arc, rate in self._about.gives[actor][number % len(self._times[actor])]:
            self._tokens[arc] += rate
            target = self._targets[arc]
            lacks, enough = self._lacks[target]
            if lacks == arc and self._tokens[arc] >= enough:
                self._lacks[target] = (-1, 0)
                self._waiting.append(target)

    def _story(self) -> str:
        waits = []
        for actor, (number, rate) in enumerate(self._lacks):
            arc = self._graph.arcs[number] if number >= 0 else None
            if arc is None or arc.channel is None:
                continue
            what = "room" if arc.origin is Origin.SPACE else "tokens"
            missing = rate - self._tokens[number]
            name = self._graph.names[actor]
            waits.append(f"{name!r} waits for {missing} more {what} in {arc.channel.name!r}")
        at = Fraction(self._now, self._unit)
        return f"everything stands still at {at}: {'; '.join(waits[:6]) or 'the order forbids it'}"


def with_links(graph: Graph, links: Mapping[str, Link]) -> tuple[Graph, dict[str, str]]:
    """`graph` with an actor in each of these channels, and the processors of those actors.

    A link carries what one firing produces in one firing of its own. A capacity bounds what is
    before, in and after the link together. Raises `CsdfError` if a channel is unknown, or a new
    name is already taken.
    """
    for name in links:
        if name not in graph.channel:
            raise CsdfError(f"{name!r} is to be carried by a link, but is no channel of the graph")
    actors, channels, on = list(graph.actors), [], {}
    for channel in graph.channels:
        if channel.name not in links:
            channels.append(channel)
            continue
        link = links[channel.name]
        rates = tuple(rate for rate in channel.production if rate)
        times = tuple(link.time + rate * link.time_per_token for rate in rates)
        carrier, size = f"{channel.name} (link)", channel.token_bytes
        on[carrier] = link.processor
        actors.append(Actor(carrier, times, 1))
        source, target, tokens = channel.source, channel.target, channel.initial_tokens
        sent = Channel(
            f"{channel.name} (sent)", source, carrier, channel.production, rates, 0, None, size
        )
        received = Channel(
            channel.name, carrier, target, rates, channel.consumption, tokens, None, size
        )
        channels += [sent, received]
        if channel.capacity is not None:
            free, back = channel.capacity - tokens, (channel.consumption, channel.production)
            channels.append(Channel(f"{channel.name} (room)", target, source, *back, free, None, 0))
    return Graph(graph.name, tuple(actors), tuple(channels)), on
