"""Discrete-event simulation of a graph on processors: the engine of `csdf.execution.simulation`.

A heap holds the ends of all firings under way. At each instant the engine ends the firings that are
due, looks at the actors that their tokens wake (`csdf.execution.token_state`), and lets every free
processor choose among its enabled actors. All times are whole ticks of `1 / unit`.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from csdf.errors import DeadlockError
from csdf.execution.shared_machine import EVEN, Platform, Sharing
from csdf.execution.time_sharing import Slicing
from csdf.execution.token_state import Rates, TokenState
from csdf.model.graph import Graph
from csdf.model.lowered import Origin, lower


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
    """Ticks of work that it has done, at speed 1."""
    next: int = 0
    ended: int = -1
    """When its last firing ended."""
    ready: list[tuple[int, int, int]] = field(default_factory=list)
    """(rank, iteration or when it came, actor), as a heap; in a static order just the actors that
    could fire."""
    chosen: deque[tuple[int, int]] = field(default_factory=deque)
    """Firings, as (actor, index), that have consumed their tokens but wait for the processor."""

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
    """A simulation under way; `all` runs it to its end."""

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
        self.unit = math.lcm(*(t.denominator for t in times)) * (EVEN if rounds else 1)
        self._times = [[int(t * self.unit) for t in times] for times in self._graph.times]
        self.phases = [len(times) for times in self._times]
        self._state = TokenState(self._graph)
        self.completed = [0] * iterations
        self.rows = [on.get(name, name) for name in number]
        machines = platform.machines
        self._sharings = [
            Slicing(machine, self.unit) if machine.slices else Sharing(machine)
            for machine in machines
        ]
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
        self._came = 0
        self._stirred: set[int] = set()
        self._settled = self._settled_when_chosen()
        self._limit = [actor.concurrency for actor in graph.actors]
        self._running = [0] * len(number)
        self._now = 0
        self._ends: list[tuple[int, int]] = []
        """(end, firing); for one on a machine, (when the machine is due, −1 − machine)."""
        self.found: list[tuple[int, int, int]] = []
        """(start, actor, index among the actor's firings) of all firings, by their starts."""
        self.ended: list[int] = []
        """The end of each of them."""
        self._full = [False] * len(number)

    def all(self) -> None:
        """Fire every actor as often as asked. Raises `DeadlockError`."""
        while True:
            self._instant()
            if not self._ends:
                break
            self._now = self._ends[0][0]
        for actor, started in enumerate(self._state.fired):
            if started < self._wanted[actor]:
                raise DeadlockError(self._story())

    def _settled_when_chosen(self) -> dict[int, list[Rates]]:
        """Return, by actor and phase, what firings produce when they are chosen, not at their end.

        Where a processor looks ahead, that is what goes to actors of the same processor: whatever
        it chooses later begins after these firings have ended.
        """
        settled: dict[int, list[Rates]] = {}
        for actor, gives in enumerate(self._state.produces):
            own = self._processor[actor]
            if own < 0 or not self._processors[own].ahead:
                continue
            settled[actor] = [[give for give in phase if self._gets(own, give)] for phase in gives]
            for phase in gives:
                phase[:] = [give for give in phase if not self._gets(own, give)]
        return settled

    def _gets(self, processor: int, give: tuple[int, int]) -> bool:
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
                    self._look_at(-1 - firing)
            while woken:
                self._see(woken.popleft())
            if self._stirred:
                stirred, self._stirred = self._stirred, set()
                for number in sorted(stirred) if len(stirred) > 1 else stirred:
                    self._choose(self._processors[number])
            if not woken and not (ends and ends[0][0] == now):
                return

    def _choose(self, processor: _Processor) -> None:
        """Let the processor choose a firing, and begin one if it is free."""
        chosen = processor.take()
        if chosen is not None:
            number = self._claim(chosen)
            settled = self._settled.get(chosen)
            if settled is not None:
                self._state.produce(settled[number % self.phases[chosen]])
            processor.chosen.append((chosen, number))
            self._state.woken.append(chosen)
            if processor.ahead:
                self._stirred.add(self._processor[chosen])
        if not processor.busy and processor.chosen:
            processor.busy = True
            self._begin(*processor.chosen.popleft(), processor)

    def _look_at(self, machine: int) -> None:
        if self._due[machine] != self._now:
            return  # a firing that began since then has changed when the machine is due
        for firing in self._sharings[machine].take_ended(self._now):
            self._end(firing)
        self._call_again(machine)

    def _call_again(self, machine: int) -> None:
        due = self._due[machine] = self._sharings[machine].next_end()
        if due is not None:
            heapq.heappush(self._ends, (due, -1 - machine))

    def _see(self, actor: int) -> None:
        """Begin or queue the firings for which `actor` has tokens."""
        state, number = self._state, self._processor[actor]
        while state.fired[actor] < self._wanted[actor]:
            if not state.is_enabled(actor):
                return
            if number >= 0:
                heapq.heappush(self._processors[number].ready, self._urgency(actor))
                self._stirred.add(number)
                return
            if self._running[actor] == self._limit[actor]:
                self._full[actor] = True
                return
            self._begin(actor, self._claim(actor), None)

    def _urgency(self, actor: int) -> tuple[int, int, int]:
        """Return the key by which a processor orders its ready actors, the smallest first."""
        rank = self._ranks[actor]
        if rank is None:
            return 0, self._state.fired[actor] // self.per_iteration[actor], actor
        self._came += 1
        return rank, self._came, actor

    def _claim(self, actor: int) -> int:
        """Consume the tokens of the actor's next firing; return its index among the actor's."""
        self._running[actor] += 1
        return self._state.consume(actor)

    def _begin(self, actor: int, number: int, processor: _Processor | None) -> None:
        firing, work = len(self.found), self._times[actor][number % self.phases[actor]]
        self.found.append((self._now, actor, number))
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
                sharing = self._sharings[processor.machine]
                sharing.start(self._now, processor.name, firing, work)
                self._call_again(processor.machine)
                return
        heapq.heappush(self._ends, (self.ended[-1], firing))

    def _end(self, firing: int) -> None:
        _, actor, number = self.found[firing]
        self.ended[firing] = self._now
        self._running[actor] -= 1
        place = self._processor[actor]
        if place >= 0:
            processor = self._processors[place]
            processor.busy, processor.ended = False, self._now
            self._stirred.add(place)
        elif self._full[actor]:
            self._full[actor] = False
            self._state.woken.append(actor)
        iteration = number // self.per_iteration[actor]
        self.completed[iteration] = self._now
        self._state.produce(self._state.produces[actor][number % self.phases[actor]])

    def _story(self) -> str:
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
        return f"everything stands still at {at}: {'; '.join(waits[:6]) or 'the order forbids it'}"
