"""When every firing starts: a schedule that repeats itself after the period.

A **periodic schedule** gives each firing of an iteration a start time; firing k of iteration n
starts at start(k) + n × λ. The earliest such schedule at the graph's own period is as fast as
self-timed execution, and needs no more room in any channel than its capacity
(`csdf.timing.expansion`).

Where firings may overtake each other, there need not be one. But what self-timed execution does
over and over again (`csdf.timing.selftimed`) is a schedule of several iterations; it can be kept
from the first iteration on, when all initial tokens have been there for ever.

Every start of a self-timed execution, until a state comes back: for firings that overtake.

Where firings may overtake each other (`csdf.timing.expansion`), who waits for whom is decided only
as they go. So the execution is followed instant by instant (`csdf.timing.selftimed`) until tokens,
phases and what is left of the firings under way are what they were before. From then on all of it
repeats itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import CsdfError, OvertakingError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.lowered import lower
from csdf.model.static_orders import Ordered, ordered
from csdf.timing.expansion import expand
from csdf.timing.selftimed import SelfTimed
from csdf.timing.throughput import throughput


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


def all_before(graph: Graph, actor: str) -> Graph:
    """The part of `graph` on which `actor` depends, itself included."""
    waits: dict[str, list[str]] = {name: [] for name in graph.actor}
    for channel in graph.channels:
        waits[channel.target].append(channel.source)
        if channel.capacity is not None:
            waits[channel.source].append(channel.target)
    found, reached = {actor}, [actor]
    for name in reached:  # grows meanwhile
        for other in waits[name]:
            if other not in found:
                found.add(other)
                reached.append(other)
    return Graph(
        graph.name,
        tuple(one for one in graph.actors if one.name in found),
        tuple(one for one in graph.channels if {one.source, one.target} <= found),
    )


def pace(part: Graph, repetitions: Mapping[str, int]) -> Fraction:
    """The period of `part` by itself, which is connected; per iteration of `repetitions`."""
    name, own = part.actors[0].name, repetition_vector(part)
    return throughput(part).period * Fraction(repetitions[name], own[name])


FIRING_LIMIT = 1_000_000
"""Firings after which an execution is taken not to recur."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actor → start times of its firings in the first `iterations`, which is 1 unless firings may
    overtake. After them all comes again, `iterations` × `period` later. The earliest start is 0.
    """

    period: Fraction
    starts: Mapping[str, tuple[Fraction, ...]]
    iterations: int = 1


def periodic_schedule(graph: Graph | Ordered, period: Fraction | None = None) -> Schedule:
    """The earliest schedule with `period` (None: the shortest that the graph can keep).

    On processors, it keeps to their orders; firings are in the order of their iteration.

    Raises as `csdf.timing.expansion.expand` does: `OvertakingError` only if a period is given, for
    a pipelined order, or if the execution does not recur.
    """
    placed = graph if isinstance(graph, Ordered) else ordered(graph, {})
    try:
        found = expand(placed.graph, period)
    except OvertakingError:
        recurring = None
        if period is None and not any(placed.fired.values()):
            recurring = _recurring(placed.graph)
        if recurring is None:
            raise
        return recurring
    lengths = {name: len(found.firings(name)) for name in found.actors}
    # Firing i of the expansion, which comes after the prologue, is number i + fired of all.
    numbers = [divmod(i + placed.fired[a], n) for a, n in lengths.items() for i in range(n)]
    starts: dict[str, list[Fraction]] = {name: [Fraction(0)] * n for name, n in lengths.items()}
    earliest = iter(found.earliest([iteration for iteration, _ in numbers]))
    for name in found.actors:
        for firing in found.firings(name):
            starts[name][numbers[firing][1]] = next(earliest)
    return Schedule(found.period, {name: tuple(own) for name, own in starts.items()})


def _recurring(graph: Graph) -> Schedule | None:
    first = graph.actors[0].name
    found = record(graph, repetition_vector(graph), first, FIRING_LIMIT)
    if not found.length:
        return None
    since = max(found.recurs.values())
    starts = {
        name: [found.start(name, since * per + i) for i in range(found.length * per)]
        for name, per in found.per_iteration.items()
    }
    earliest = min(map(min, starts.values()))
    shifted = {name: tuple(start - earliest for start in own) for name, own in starts.items()}
    return Schedule(found.turn / found.length, shifted, found.length)
