"""Simulate some iterations of a graph on processors, with exact times.

Every actor fires as soon as its tokens and places have arrived and its processor is free. A
processor (a device, or a link) runs one firing at a time. If several actors could fire on it, the
one with the oldest iteration goes first, as on the agents, then the one named first in the graph;
or the processor follows a static order. Actors without a processor wait only for tokens and places.

A link is an actor too: `with_links` puts one into a channel. It carries the tokens of each firing
in one transfer, which takes time on a processor that several channels may share.

The engine is a discrete-event simulation (`Run`). A heap holds the ends of all firings in progress.
At each instant the engine ends the firings that are due, examines the actors that may be enabled by
their tokens (`csdf.execution.token_state`), and lets every free processor choose among its enabled
actors. All times are whole ticks of 1 / `unit`.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from random import Random

from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.execution.shared_machine import FINENESS, IDEAL, Platform, Slicing
from csdf.execution.token_state import Rates, TokenState
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Channel, Graph
from csdf.model.lowered import Origin, lower, readable

FIRING_LIMIT = 2_000_000
"""Largest number of firings that are simulated."""


@dataclass(slots=True)
class _Processor:
    name: str
    order: tuple[int, ...] | None
    wake: int
    machine: int | None
    ahead: int
    spread: Fraction
    busy: bool = False
    worked: int = 0
    """Ticks of work done, at speed 1."""
    next: int = 0
    ended: int = -1
    """When its last firing ended."""
    ready: list[tuple[int, int, int]] = field(default_factory=list)
    """Enabled actors, as a heap of (rank, iteration or arrival, actor)."""
    chosen: deque[tuple[int, int]] = field(default_factory=deque)
    """Firings, as (actor, index), that have consumed their tokens and wait for the processor."""

    def take(self) -> int | None:
        """Remove and return the ready actor to fire next; None if there is none."""
        if len(self.chosen) + self.busy > self.ahead or not self.ready:
            return None
        if self.order is None:
            return heapq.heappop(self.ready)[2]
        wanted = self.order[self.next % len(self.order)]
        for place, (_, _, actor) in enumerate(self.ready):
            if actor == wanted:
                del self.ready[place]
                self.next += 1
                return actor
        return None


class Run:
    """A simulation; `execute` runs it to its end."""

    def __init__(
        self,
        graph: Graph,
        iterations: int,
        repetitions: Mapping[str, int],
        on: Mapping[str, str],
        orders: Mapping[str, Sequence[str]],
        platform: Platform,
    ) -> None:
        self._graph = lower(graph, concurrency=False)
        self.names = self._graph.names
        number = {name: i for i, name in enumerate(self.names)}
        self.per_iteration = [repetitions[a.name] * a.phases for a in graph.actors]
        self._wanted = [iterations * own for own in self.per_iteration]
        times = [t for times in self._graph.times for t in times] + list(platform.wakes.values())
        rounds = platform.machines or any(platform.spread.values())
        self.unit = math.lcm(*(t.denominator for t in times)) * (FINENESS if rounds else 1)
        self._times = [[int(t * self.unit) for t in times] for times in self._graph.times]
        self.phases = [len(times) for times in self._times]
        self._state = TokenState(self._graph)
        self.completed = [0] * iterations
        self.rows = [on.get(name, name) for name in number]
        machines = platform.machines
        self._machines = [Slicing(machine, self.unit) for machine in machines]
        self._due: list[int | None] = [None] * len(machines)
        machine_of = {name: i for i, machine in enumerate(machines) for name in machine.processors}
        self._random = Random(platform.seed)  # noqa: S311 - no secret
        self._processors = [
            _Processor(
                name,
                tuple(number[a] for a in orders[name]) if name in orders else None,
                int(platform.wakes.get(name, Fraction(0)) * self.unit),
                machine_of.get(name),
                platform.ahead.get(name, 0),
                platform.spread.get(name, Fraction(0)),
            )
            for name in dict.fromkeys(on.values())
        ]
        place = {processor.name: i for i, processor in enumerate(self._processors)}
        self._processor = [place.get(on.get(name, ""), -1) for name in number]
        self._ranks = [platform.ranks.get(name) for name in number]
        self._arrivals = 0
        self._choosing: set[int] = set()
        self._early_outputs = self._find_early_outputs()
        self._limit = [actor.concurrency for actor in graph.actors]
        self._running = [0] * len(number)
        self._now = 0
        self._ends: list[tuple[int, int]] = []
        """A heap of (end, firing), and of (next end on a machine, −1 − machine)."""
        self.started: list[tuple[int, int, int]] = []
        """All firings in the order of starts: (start, actor, index among the actor's firings)."""
        self.ended: list[int] = []
        """The end of each of these firings."""
        self._full = [False] * len(number)

    def execute(self) -> None:
        """Execute all iterations. Raises `DeadlockError`."""
        while True:
            self._instant()
            if not self._ends:
                break
            self._now = self._ends[0][0]
        for actor, started in enumerate(self._state.fired):
            if started < self._wanted[actor]:
                raise DeadlockError(self._describe_deadlock())

    def _find_early_outputs(self) -> dict[int, list[Rates]]:
        """Return, by actor and phase, what firings produce when they are chosen, not at their end.

        Where a processor chooses ahead, these are the tokens for actors of the same processor:
        whatever it chooses later begins after these firings have ended.
        """
        early: dict[int, list[Rates]] = {}
        for actor, gives in enumerate(self._state.produces):
            own = self._processor[actor]
            if own < 0 or not self._processors[own].ahead:
                continue
            early[actor] = [
                [rate for rate in phase if self._receives(own, rate)] for phase in gives
            ]
            for phase in gives:
                phase[:] = [rate for rate in phase if not self._receives(own, rate)]
        return early

    def _receives(self, processor: int, give: tuple[int, int]) -> bool:
        return self._processor[self._state.targets[give[0]]] == processor

    def worked(self) -> dict[str, int]:
        """Return each processor's ticks of work at speed 1, waking up included."""
        return {processor.name: processor.worked for processor in self._processors}

    def _instant(self) -> None:
        ends, now, woken = self._ends, self._now, self._state.woken
        while True:
            while ends and ends[0][0] == now:
                _, firing = heapq.heappop(ends)
                if firing >= 0:
                    self._end(firing)
                else:
                    self._end_on_machine(-1 - firing)
            while woken:
                self._queue_or_begin(woken.popleft())
            if self._choosing:
                choosing, self._choosing = self._choosing, set()
                for number in sorted(choosing) if len(choosing) > 1 else choosing:
                    self._choose(self._processors[number])
            if not woken and not (ends and ends[0][0] == now):
                return

    def _choose(self, processor: _Processor) -> None:
        """Let the processor choose a firing, and begin one if it is free."""
        chosen = processor.take()
        if chosen is not None:
            number = self._claim(chosen)
            early = self._early_outputs.get(chosen)
            if early is not None:
                self._state.produce(early[number % self.phases[chosen]])
            processor.chosen.append((chosen, number))
            self._state.woken.append(chosen)
            if processor.ahead:
                self._choosing.add(self._processor[chosen])
        if not processor.busy and processor.chosen:
            processor.busy = True
            self._begin(*processor.chosen.popleft(), processor)

    def _end_on_machine(self, machine: int) -> None:
        if self._due[machine] != self._now:
            return  # a firing that began since then has changed when the machine is due
        for firing in self._machines[machine].take_ended(self._now):
            self._end(firing)
        self._schedule_machine(machine)

    def _schedule_machine(self, machine: int) -> None:
        due = self._due[machine] = self._machines[machine].next_end()
        if due is not None:
            heapq.heappush(self._ends, (due, -1 - machine))

    def _queue_or_begin(self, actor: int) -> None:
        """Begin or queue the firings for which `actor` has tokens."""
        state, number = self._state, self._processor[actor]
        while state.fired[actor] < self._wanted[actor]:
            if not state.is_enabled(actor):
                return
            if number >= 0:
                heapq.heappush(self._processors[number].ready, self._priority(actor))
                self._choosing.add(number)
                return
            if self._running[actor] == self._limit[actor]:
                self._full[actor] = True
                return
            self._begin(actor, self._claim(actor), None)

    def _priority(self, actor: int) -> tuple[int, int, int]:
        """Return the key by which a processor orders its ready actors, the smallest first."""
        rank = self._ranks[actor]
        if rank is None:
            return 0, self._state.fired[actor] // self.per_iteration[actor], actor
        self._arrivals += 1
        return rank, self._arrivals, actor

    def _claim(self, actor: int) -> int:
        """Consume the tokens of the actor's next firing; return its index among the actor's."""
        self._running[actor] += 1
        return self._state.consume(actor)

    def _begin(self, actor: int, number: int, processor: _Processor | None) -> None:
        firing, work = len(self.started), self._times[actor][number % self.phases[actor]]
        self.started.append((self._now, actor, number))
        self.ended.append(self._now + work)
        if processor is not None:
            if processor.spread:
                drawn = self._random.getrandbits(16) * 2 - 65_535
                spread = processor.spread
                work += work * drawn * spread.numerator // (65_535 * spread.denominator)
                self.ended[-1] = self._now + work
            if processor.wake and processor.ended != self._now:
                work += processor.wake
                self.ended[-1] += processor.wake
            processor.worked += work
            if processor.machine is not None:
                machine = self._machines[processor.machine]
                machine.start(self._now, processor.name, firing, work)
                self._schedule_machine(processor.machine)
                return
        heapq.heappush(self._ends, (self.ended[-1], firing))

    def _end(self, firing: int) -> None:
        _, actor, number = self.started[firing]
        self.ended[firing] = self._now
        self._running[actor] -= 1
        place = self._processor[actor]
        if place >= 0:
            processor = self._processors[place]
            processor.busy, processor.ended = False, self._now
            self._choosing.add(place)
        elif self._full[actor]:
            self._full[actor] = False
            self._state.woken.append(actor)
        iteration = number // self.per_iteration[actor]
        self.completed[iteration] = self._now
        self._state.produce(self._state.produces[actor][number % self.phases[actor]])

    def _describe_deadlock(self) -> str:
        waits = []
        for actor, (number, rate) in enumerate(self._state.awaited):
            arc = self._graph.arcs[number] if number >= 0 else None
            if arc is None or arc.channel is None:
                continue
            what = "room" if arc.origin is Origin.SPACE else "tokens"
            missing = rate - self._state.tokens[number]
            name = self.names[actor]
            waits.append(f"{name!r} waits for {missing} more {what} in {arc.channel.name!r}")
        at = Fraction(self._now, self.unit)
        return f"no firing can begin at {at}: {'; '.join(waits[:6]) or 'the order forbids it'}"


@dataclass(frozen=True, slots=True)
class Firing:
    """A firing; `phase` and `iteration` count from 0, `row` is its processor, or else its actor."""

    actor: str
    phase: int
    iteration: int
    row: str
    start: Fraction
    end: Fraction


class Timeline:
    """The result of a simulation; times are in the unit of the graph's execution times."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._unit = run.unit

    @cached_property
    def firings(self) -> tuple[Firing, ...]:
        """Every firing, in the order of starts."""
        return tuple(map(self._firing, range(len(self._run.started))))

    @cached_property
    def completed(self) -> tuple[Fraction, ...]:
        """The time at which each iteration was complete."""
        return tuple(Fraction(end, self._unit) for end in self._run.completed)

    @property
    def end(self) -> Fraction:
        """The time at which the last firing ended."""
        return max(self.completed, default=Fraction(0))

    def of(self, actor: str) -> tuple[Firing, ...]:
        """Return the firings of `actor` in the order of starts; none if there is no such actor."""
        return tuple(map(self._firing, self._by_actor.get(actor, ())))

    def busy(self) -> dict[str, Fraction]:
        """Return the sum of the durations of all firings by row; overlapping ones count twice."""
        found: dict[str, int] = {}
        for (start, actor, _), end in zip(self._run.started, self._run.ended, strict=True):
            row = self._run.rows[actor]
            found[row] = found.get(row, 0) + end - start
        return {row: Fraction(ticks, self._unit) for row, ticks in found.items()}

    def worked(self) -> dict[str, Fraction]:
        """Return the sum of the execution times of firings and wake-ups, by processor.

        Sharing the CPUs of a machine does not change it.
        """
        worked = self._run.worked()
        return {name: Fraction(ticks, self._unit) for name, ticks in worked.items()}

    @cached_property
    def _by_actor(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for number, (_, actor, _) in enumerate(self._run.started):
            found.setdefault(self._run.names[actor], []).append(number)
        return found

    def _firing(self, number: int) -> Firing:
        run, unit = self._run, self._unit
        start, actor, nth = run.started[number]
        return Firing(
            run.names[actor],
            nth % run.phases[actor],
            nth // run.per_iteration[actor],
            run.rows[actor],
            Fraction(start, unit),
            Fraction(run.ended[number], unit),
        )


@dataclass(frozen=True, slots=True)
class Link:
    """A link that carries a channel: its processor, and its times per transfer and per token."""

    processor: str
    time: Fraction = Fraction(0)
    time_per_token: Fraction = Fraction(0)


def simulate(
    graph: Graph,
    iterations: int,
    processors: Mapping[str, str] | None = None,
    orders: Mapping[str, Sequence[str]] | None = None,
    platform: Platform = IDEAL,
) -> Timeline:
    """Simulate the first `iterations` of `graph`.

    `processors` maps actors to processors. `orders` maps processors to static orders: the actors of
    one iteration, a name per firing. `platform` has further properties of processors. Raises
    `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, and `CsdfError` if a name is
    unknown, an actor is on two processors, or the order of its processor lacks it.

    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),))
    >>> [str(end) for end in simulate(graph, 3).completed]
    ['5', '8', '11']
    >>> [str(end) for end in simulate(graph, 3, {"a": "cpu", "b": "cpu"}).completed]
    ['5', '10', '15']
    """
    repetitions = repetition_vector(graph)
    total = iterations * sum(repetitions[a.name] * a.phases for a in graph.actors)
    if total > FIRING_LIMIT:
        raise TooLargeError(
            f"{readable(total)} firings are to be simulated; at most {FIRING_LIMIT} can be"
        )
    on = dict(processors or {})
    orders = orders or {}
    for processor, order in orders.items():
        for name in order:
            if on.setdefault(name, processor) != processor:
                raise CsdfError(f"{name!r} is to run on both {on[name]!r} and {processor!r}")
    ordered = {name for order in orders.values() for name in order}
    for name, processor in on.items():
        if name not in graph.actor:
            raise CsdfError(
                f"{name!r} is to run on {processor!r}, but is not an actor of the graph"
            )
        if processor in orders and name not in ordered:
            raise CsdfError(f"{name!r} is to run on {processor!r}, whose order lacks it")
    run = Run(graph, iterations, repetitions, on, orders, platform)
    run.execute()
    return Timeline(run)


def static_orders(graph: Graph, processors: Mapping[str, str]) -> dict[str, list[str]]:
    """Return static orders in which `graph` is live: those of one simulated iteration.

    `processors` maps actors to processors, the result processors to actors, one per firing. The
    period is not always the shortest, since finding the order with the shortest period is
    NP-hard. The functions of `csdf.execution.static_orders` take these orders. Raises as `simulate`
    does.

    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (1,), (2,)),))
    >>> static_orders(graph, {"a": "cpu", "b": "cpu"})
    {'cpu': ['a', 'a', 'b']}
    """
    orders: dict[str, list[str]] = {processor: [] for processor in processors.values()}
    for firing in simulate(graph, 1, processors).firings:
        if firing.actor in processors:
            orders[firing.row].append(firing.actor)
    return orders


def with_links(graph: Graph, links: Mapping[str, Link]) -> tuple[Graph, dict[str, str]]:
    """Return `graph` with an actor in each channel of `links`, and the processors of these actors.

    Each firing of a link transfers what one firing of its producer produces. A capacity bounds the
    tokens before, in and after the link together. Raises `CsdfError` if a channel is unknown, or a
    new name is already taken.

    >>> from csdf import Actor, Channel, Graph
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> graph = Graph("g", actors, (Channel("c", "a", "b", (4,), (4,)),))
    >>> linked, processors = with_links(graph, {"c": Link("wifi", time_per_token=Fraction(1, 2))})
    >>> processors
    {'c (link)': 'wifi'}
    >>> simulate(linked, 1, processors).end
    Fraction(7, 1)
    """
    for name in links:
        if name not in graph.channel:
            raise CsdfError(
                f"{name!r} is to be carried by a link, but is not a channel of the graph"
            )
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
