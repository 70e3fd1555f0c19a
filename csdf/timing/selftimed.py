"""Self-timed execution: every actor fires as soon as it can, until a state recurs.

The state is the tokens in all channels, the phases of all actors, and the times that remain of the
firings under way. A strongly connected, live graph has finitely many such states, so one recurs,
and the time between its two visits, divided by the iterations between them, is the exact period.
This follows the definition of the model to the letter, overtaking firings included, but takes as
many steps as there are firings until then. `csdf.timing.throughput` uses it where cycle ratios do
not apply.

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
"""Firings after which the search for a recurring state gives up."""

STATE_LIMIT = 10_000_000
"""Numbers in all states that are kept at most: some hundred MB."""


class SelfTimed:
    """A self-timed execution from the initial state on, one instant after the other.

    `per_iteration` is how often each actor fires in an iteration, in phase firings.
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
        """Let everything happen that happens now; return False if that never ends.

        It never ends if tokens and phases come back although no time has passed, as around a cycle
        of zero times. Raises `TooLargeError` if that is not seen within `FIRING_LIMIT` firings.
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
        """Let time pass until the next firing ends; return False if none is under way."""
        if not self._ends:
            return False
        self.now = self._ends[0][0]
        return True

    def phases(self) -> tuple[int, ...]:
        """The phase that each actor starts next."""
        return tuple(n % len(times) for n, times in zip(self.started, self._times, strict=True))

    def state(self) -> tuple[tuple[object, ...], ...]:
        """Return all that decides what happens from now on, with times relative to now."""
        left = tuple(sorted((end - self.now, actor, phase) for end, actor, phase in self._ends))
        return (tuple(self._state.tokens), self.phases(), left)

    def _start(self, actor: int) -> int:
        """Start firings of `actor`, an iteration's worth at most; return how many."""
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
    """The exact time of one iteration of a live, strongly connected graph.

    `repetitions` counts cycles of phases; they may be a multiple of the smallest possible. Raises
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
                    f"no state of the self-timed execution came back while {len(seen)} of them, "
                    f"of {held // (len(seen) + 1)} numbers each, were kept"
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
                f"no state of the self-timed execution came back within {FIRING_LIMIT} firings"
            )
        if not execution.advance():
            raise ValueError("the graph deadlocks")  # callers check liveness first
    return Fraction(0)


@dataclass(frozen=True)
class Recording:
    """Per actor the starts of its firings, `per_iteration` of them in each iteration.

    From iteration `recurs[actor]` on they come back every `length` iterations, later by `turn`;
    `length` is 0 if that was not found.
    """

    graph: Graph
    per_iteration: Mapping[str, int]
    starts: Mapping[str, Sequence[Fraction]]
    recurs: Mapping[str, int]
    length: int
    turn: Fraction

    def start(self, actor: str, number: int) -> Fraction:
        """When firing `number` of `actor` starts, of all; `length` is not 0."""
        own, every = self.starts[actor], self.length * self.per_iteration[actor]
        turns = max(0, -(-(number + 1 - len(own)) // every))
        return own[number - turns * every] + turns * self.turn

    def begins(self, actor: str) -> list[Fraction]:
        """When its first firing of each iteration starts."""
        return list(self.starts[actor][:: self.per_iteration[actor]])

    def ends(self, actor: str) -> list[Fraction]:
        """When all its firings of each iteration have ended."""
        times, per = self.graph.actor[actor].execution_times, self.per_iteration[actor]
        own = [start + times[i % len(times)] for i, start in enumerate(self.starts[actor])]
        return [max(own[i : i + per]) for i in range(0, len(own) - per + 1, per)]


def record(
    graph: Graph, repetitions: Mapping[str, int], paced_by: str, firing_limit: int, more: int = 0
) -> Recording:
    """Follows `graph` until it recurs, on until every recurring iteration has begun, and `more`.

    `repetitions` counts the cycles of phases of an iteration. States are compared when actor
    `paced_by` begins one. After `firing_limit` firings, or if parts without a channel between them
    go at different paces, it ends with the first iteration that is complete, and `more`.

    Raises `CsdfError` if firings start without end at one instant.
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
                "firings start without end at one instant, so nothing can be told of each of them; "
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
