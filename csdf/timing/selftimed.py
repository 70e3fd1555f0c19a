"""Execute a graph self-timed, every actor firing as soon as it can, until a state recurs.

The state is the tokens in all channels, the phases of all actors, and the remaining times of the
firings in progress. A strongly connected, live graph has finitely many such states, so one recurs;
the time between its two visits, divided by the iterations between them, is the exact period
(`period`). `record` also keeps the start of every firing.

This follows the definition of the model to the letter, overtaking firings included, but takes as
many steps as there are firings until then. So it is used only where firings may overtake each
other, since only the execution decides then which firing waits for which.

Source: A. H. Ghamarian et al., "Throughput analysis of synchronous data flow graphs", ACSD 2006.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.token_state import TokenState
from csdf.model.graph import Graph
from csdf.model.lowered import Lowered, lower

FIRING_LIMIT = 2_000_000
"""Firings after which the search for a recurrence ends."""

STATE_LIMIT = 10_000_000
"""Largest number of integers in all states that are kept: some hundred MB."""


class SelfTimed:
    """A self-timed execution from the initial state on, one instant after the other.

    `per_iteration` is the number of phase firings of each actor in an iteration.
    """

    def __init__(self, graph: Lowered, per_iteration: Sequence[int]) -> None:
        self.unit = math.lcm(*(time.denominator for times in graph.times for time in times))
        self.now = 0
        self._state = TokenState(graph)
        self._times = [[int(time * self.unit) for time in times] for times in graph.times]
        self._per_iteration = per_iteration
        self._at_once = [min(count, FIRING_LIMIT) for count in per_iteration]
        self._ends: list[tuple[int, int, int]] = []

    @property
    def started(self) -> Sequence[int]:
        """How many firings of each actor have started."""
        return self._state.fired

    def instant(self) -> bool:
        """End and start all firings that end or start now; return False if that never stops.

        It never stops if tokens and phases recur although no time has passed, as around a cycle of
        zero times. Raises `TooLargeError` if that is not detected within `FIRING_LIMIT` firings.
        """
        state, ends, now, produces = self._state, self._ends, self.now, self._state.produces
        started, seen = 0, set()
        look = every = 1 + sum(self._per_iteration)
        while True:
            while ends and ends[0][0] == now:
                _, actor, phase = heapq.heappop(ends)
                state.produce(produces[actor][phase])
            if not state.woken:
                return True
            count = self._start(state.woken.popleft())
            started += count
            if count and started > look:
                reached = (tuple(state.tokens), self.phases())
                if reached in seen:
                    return False
                seen.add(reached)
                look += every
            if started > FIRING_LIMIT:
                raise TooLargeError(f"more than {FIRING_LIMIT} firings start at the same time")

    def advance(self) -> bool:
        """Advance the time to the next end of a firing; return False if none is in progress."""
        if not self._ends:
            return False
        self.now = self._ends[0][0]
        return True

    def phases(self) -> tuple[int, ...]:
        """Return the phase that each actor starts next."""
        return tuple(n % len(times) for n, times in zip(self.started, self._times, strict=True))

    def state(self) -> tuple[tuple[object, ...], ...]:
        """Return all that determines the future execution, with times relative to now."""
        left = tuple(sorted((end - self.now, actor, phase) for end, actor, phase in self._ends))
        return (tuple(self._state.tokens), self.phases(), left)

    def _start(self, actor: int) -> int:
        """Start firings of `actor`, at most those of one iteration; return how many."""
        state, times, ends, now = self._state, self._times[actor], self._ends, self.now
        started, most = 0, self._at_once[actor]
        while started < most:
            phase = state.begin(actor)
            if phase < 0:
                return started
            started += 1
            time = times[phase]
            if time:
                heapq.heappush(ends, (now + time, actor, phase))
            else:
                state.produce(state.produces[actor][phase])
        state.woken.append(actor)
        return started


def period(graph: Lowered, repetitions: Sequence[int]) -> Fraction:
    """Return the exact period of a live, strongly connected graph.

    `repetitions` counts the cycles of phases of an iteration. Raises
    `TooLargeError` after `FIRING_LIMIT` firings, or `STATE_LIMIT` numbers in all states.
    """
    common = math.gcd(*repetitions)
    per_iteration = [
        q // common * len(times) for q, times in zip(repetitions, graph.times, strict=True)
    ]
    execution = SelfTimed(graph, per_iteration)
    seen: dict[tuple[object, ...], tuple[int, int]] = {}
    boundary = held = 0
    while execution.instant():
        count = execution.started[0]
        if count >= boundary:
            parts = execution.state()
            held += sum(map(len, parts))
            if held > STATE_LIMIT:
                raise TooLargeError(
                    f"no state of the self-timed execution recurred among the {len(seen)} that "
                    f"were kept, of {held // (len(seen) + 1)} numbers each"
                )
            state = (count % per_iteration[0], *parts)
            if state in seen:
                then, before = seen[state]
                iterations = (count - before) // per_iteration[0]
                return Fraction(execution.now - then, execution.unit * iterations) * common
            seen[state] = (execution.now, count)
            boundary = (count // per_iteration[0] + 1) * per_iteration[0]
        if sum(execution.started) > FIRING_LIMIT:
            raise TooLargeError(
                f"no state of the self-timed execution recurred within {FIRING_LIMIT} firings"
            )
        if not execution.advance():
            raise ValueError("the graph deadlocks")  # callers check liveness first
    return Fraction(0)


@dataclass(frozen=True)
class Recording:
    """The starts of each actor's firings, of which each iteration has `per_iteration[actor]`.

    From iteration `recurs[actor]` on they recur every `length` iterations, later by `turn`;
    `length` is 0 if no recurrence was found.
    """

    graph: Graph
    per_iteration: Mapping[str, int]
    starts: Mapping[str, Sequence[Fraction]]
    recurs: Mapping[str, int]
    length: int
    turn: Fraction

    def start(self, actor: str, number: int) -> Fraction:
        """Return the start of firing `number` of `actor`, however late; `length` must not be 0."""
        own, every = self.starts[actor], self.length * self.per_iteration[actor]
        turns = max(0, -(-(number + 1 - len(own)) // every))
        return own[number - turns * every] + turns * self.turn

    def begins(self, actor: str) -> list[Fraction]:
        """Return the start of each iteration's first firing of `actor`."""
        return list(self.starts[actor][:: self.per_iteration[actor]])

    def ends(self, actor: str) -> list[Fraction]:
        """Return when all firings of `actor` of each iteration have ended."""
        times, per = self.graph.actor[actor].execution_times, self.per_iteration[actor]
        own = [start + times[i % len(times)] for i, start in enumerate(self.starts[actor])]
        return [max(own[i : i + per]) for i in range(0, len(own) - per + 1, per)]


def record(
    graph: Graph, repetitions: Mapping[str, int], paced_by: str, firing_limit: int, more: int = 0
) -> Recording:
    """Execute `graph` until it has recurred once, and for `more` iterations.

    `repetitions` counts the cycles of phases of an iteration. States are compared when actor
    `paced_by` begins an iteration. After `firing_limit` firings, or if unconnected parts have
    different periods, the recording ends with the first complete iteration and `more`.

    Raises `CsdfError` if infinitely many firings start at one instant.
    """
    per = [repetitions[actor.name] * actor.phases for actor in graph.actors]
    execution = SelfTimed(lower(graph), per)
    starts: list[list[Fraction]] = [[] for _ in per]
    seen: dict[object, tuple[int, list[int]]] = {}
    pacer = [actor.name for actor in graph.actors].index(paced_by)
    recurs, length, turn, boundary = [0] * len(per), 0, 0, 0
    while True:
        if not execution.instant():
            raise CsdfError(
                "infinitely many firings start at one instant, so they cannot be listed; "
                "give every actor a self-channel or a concurrency"
            )
        now = Fraction(execution.now, execution.unit)
        for own, count in zip(starts, execution.started, strict=True):
            own.extend([now] * (count - len(own)))
        count = execution.started[pacer]
        if not length and count >= boundary:
            places = tuple(n % size for n, size in zip(execution.started, per, strict=True))
            key = (places, *execution.state())
            then, before = seen.setdefault(key, (execution.now, list(execution.started)))
            if before[pacer] < count:
                turns = {
                    (n - m) // size
                    for n, m, size in zip(execution.started, before, per, strict=True)
                }
                if len(turns) > 1:
                    firing_limit = 0
                else:
                    length, turn = turns.pop(), execution.now - then
                    recurs = [-(-n // size) for n, size in zip(before, per, strict=True)]
            boundary = (count // per[pacer] + 1) * per[pacer]
        wanted = max(recurs) + max(1, length) + more
        enough = all(len(own) >= wanted * size for own, size in zip(starts, per, strict=True))
        if enough and (length or sum(execution.started) >= firing_limit):
            break
        if not execution.advance():
            raise CsdfError("the graph deadlocks")  # callers check liveness first
    names = [actor.name for actor in graph.actors]
    return Recording(
        graph,
        dict(zip(names, per, strict=True)),
        dict(zip(names, starts, strict=True)),
        dict(zip(names, recurs, strict=True)),
        length,
        Fraction(turn, execution.unit),
    )
