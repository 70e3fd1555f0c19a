"""All firings of one iteration, what each waits for, and when it starts at the earliest.

With every actor's K at its repetition count (`csdf.timing.event_graph`), firing j of iteration n
waits for firing i of iteration n − delay, delay ≥ 0, so the constraints are exact, firing by
firing. At a period λ that the graph can keep, the earliest start times of a schedule that repeats
itself after λ are the longest walks to each firing, where an edge weighs time − λ × delay. An
edge's
**float** is how much later its target starts than the edge asks; floats are not negative, so what
else is asked of the schedule is a shortest path over floats.

Whether firings that may overlap end in the order in which they start all the same.

Firings of an actor start in the order of its phases, and overlap where no channel prevents it. A
later, shorter one could then end before an earlier one: it **overtakes** it, its tokens come first,
and a consumer takes them, for a channel counts tokens and does not distinguish them. The
constraints of `csdf.timing.event_graph` say who waits for whom on the understanding that nobody
overtakes.

Very often nobody can: the cycles that the actor is on keep its firings far enough apart. Let f and
g be consecutive firings. If a way of constraints from f to g, over as many iterations as lie
between them, takes time(f) − time(g) or longer, then g ends no earlier than f. And if that holds
for all of them, the constraints are exact: whatever leads to a first overtaking lies before it,
when tokens have come in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from csdf.errors import CsdfError, DeadlockError, OvertakingError, TooLargeError
from csdf.execution.liveness import check_liveness
from csdf.model.consistency import NODE_LIMIT, firings, repetition_vector
from csdf.model.graph import Graph
from csdf.model.graph_algorithms import shortest_path, topological_order
from csdf.model.lowered import Lowered, lower, readable
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import maximum_cycle_ratio
from csdf.timing.event_graph import EventGraph
from csdf.timing.throughput import overtaking, throughput

WORK_LIMIT = 2_000_000
"""Constraints that are looked at; beyond, firings are taken to overtake."""


class Ways:
    """The constraints of `events`, which has all firings of an iteration: delays are whole ones."""

    def __init__(self, events: EventGraph) -> None:
        self._waiting: list[list[tuple[int, int, int]]] = [[] for _ in range(events.nodes)]
        before: list[list[int]] = [[] for _ in range(events.nodes)]
        columns = (events.source, events.target, events.time, events.delay)
        for source, target, time, delay in zip(*(c.tolist() for c in columns), strict=True):
            self._waiting[source].append((target, time, delay))
            if delay == 0:
                before[target].append(source)
        self._order, _ = topological_order(before)

    def longest(self, start: int, target: int, iterations: int) -> int | None:
        """The longest way from firing `start` to `target`, so many iterations on, if there is one.

        In units of 1 / `events.time_unit`.
        """
        found = {(0, start): 0}
        for iteration in range(iterations + 1):
            for firing in self._order:
                length = found.get((iteration, firing))
                if length is None:
                    continue
                for other, time, delay in self._waiting[firing]:
                    reached = iteration + delay, other
                    if reached[0] <= iterations and length + time > found.get(reached, -1):
                        found[reached] = length + time
        return found.get((iterations, target))


def first_to_overtake(
    events: EventGraph, times: Sequence[Sequence[int]], actors: Iterable[int]
) -> int | None:
    """The first of `actors` that is not proved to end its firings in order; None if all are.

    `events` has all firings of an iteration of a live graph; `times` has the duration of each phase
    of each actor, in units of 1 / `events.time_unit`.
    """
    ways = Ways(events)
    ends = [*events.first[1:], events.nodes]
    left = WORK_LIMIT
    for actor in actors:
        first, count = events.first[actor], ends[actor] - events.first[actor]
        for place in range(count):
            longer = times[actor][place % len(times[actor])]
            apart = longer - times[actor][(place + 1) % len(times[actor])]
            if apart <= 0:
                continue
            left -= len(events.source)
            if left < 0:
                return actor
            after, iterations = (place + 1) % count, int(place + 1 == count)
            if (ways.longest(first + place, first + after, iterations) or 0) < apart:
                return actor
    return None


@dataclass(frozen=True)
class Expansion:
    """Firing `first[a] + k` is the k-th of actor a in an iteration; `actors` are their names.

    `starts` are the earliest start times, in units of 1 / `unit`; `period` is λ, in the graph's own
    unit. `events` are the constraints (delays in whole iterations).
    """

    actors: tuple[str, ...]
    period: Fraction
    events: EventGraph
    starts: Sequence[int]
    unit: int
    channels: Mapping[int, str]
    """Number of a constraint's arc (`events.arc`) → its channel, where it has one."""

    def firings(self, actor: str) -> range:
        """The numbers of the firings of `actor`."""
        place = self.actors.index(actor)
        ends = [*self.events.first[1:], self.events.nodes]
        return range(self.events.first[place], ends[place])

    def start(self, firing: int) -> Fraction:
        """When `firing` of iteration 0 starts."""
        return Fraction(self.starts[firing], self.unit)

    def earliest(self, iterations: Sequence[int]) -> list[Fraction]:
        """The earliest starts if firing v of this iteration 0 counts as one of `iterations[v]`.

        Of each firing the start in iteration 0 of that count.
        """
        if not any(iterations):
            return [self.start(firing) for firing in range(self.events.nodes)]
        events, shift = self.events, np.array(iterations, np.int64)
        result = maximum_cycle_ratio(
            events.nodes,
            events.target,
            events.source,
            events.time,
            events.delay + shift[events.target] - shift[events.source],
            at_least=self.period * events.time_unit,
        )
        return [Fraction(int(value), self.unit) for value in result.potentials]

    @cached_property
    def leaving(self) -> list[list[tuple[int, int]]]:
        """Per firing the firings that wait for it, with the floats in units of 1 / `unit`."""
        found: list[list[tuple[int, int]]] = [[] for _ in range(self.events.nodes)]
        scale = self.unit // self.events.time_unit
        turn = int(self.period * self.unit)
        for source, target, time, delay in zip(
            self.events.source.tolist(),
            self.events.target.tolist(),
            self.events.time.tolist(),
            self.events.delay.tolist(),
            strict=True,
        ):
            weight = time * scale - turn * delay
            found[source].append((target, self.starts[target] - self.starts[source] - weight))
        return found

    def least_float(self, source: int, target: int) -> Fraction | None:
        """The least sum of floats on a way of at least one edge; None if there is no way."""
        found = shortest_path(self.leaving.__getitem__, source, target)
        return None if found is None else Fraction(found, self.unit)


def expand(
    graph: Graph, period: Fraction | None = None, shortest: Fraction | None = None
) -> Expansion:
    """The expansion of a live `graph` at `period`, by default the smallest that it can keep.

    `shortest` is that smallest period, where it is known.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, `OvertakingError` if firings
    may overtake each other, and `CsdfError` if `period` is too short.
    """
    repetitions = repetition_vector(graph)
    if firings(graph, repetitions) > NODE_LIMIT:
        raise TooLargeError(
            f"an iteration has {readable(firings(graph, repetitions))} firings; "
            f"at most {NODE_LIMIT} can be looked at one by one"
        )
    lowered = lower(graph)
    counts = [repetitions[name] for name in lowered.names]
    unordered = overtaking(lowered)
    if unordered:
        deadlock = check_liveness(graph)
        if deadlock is not None:
            raise DeadlockError(str(deadlock))
    elif shortest is None:
        shortest = throughput(graph).period
    events = event_graph.build(lowered, counts, counts)
    if unordered:
        _require_order(lowered, events, unordered)
    # Edges are turned round so that the potentials are walks to, not from, each firing.
    edges = events.nodes, events.target, events.source, events.time, events.delay
    if shortest is None:
        ratio = maximum_cycle_ratio(*edges).ratio
        assert ratio is not None  # noqa: S101 (the graph is live)
        shortest = ratio / events.time_unit
    if period is None:
        period = shortest
    if period < shortest:
        raise CsdfError(f"the graph cannot keep a period of {period}; the shortest is {shortest}")
    ratio = period * events.time_unit
    result = maximum_cycle_ratio(*edges, at_least=ratio)
    assert result.ratio == ratio  # noqa: S101 (no cycle exceeds the exact period)
    starts = [int(value) for value in result.potentials]
    channels = {i: arc.channel.name for i, arc in enumerate(lowered.arcs) if arc.channel}
    unit = events.time_unit * ratio.denominator
    return Expansion(lowered.names, period, events, starts, unit, channels)


def _require_order(graph: Lowered, events: EventGraph, unordered: set[int]) -> None:
    times = [event_graph.scaled(own, events.time_unit) for own in graph.times]
    actor = first_to_overtake(events, times, sorted(unordered))
    if actor is not None:
        raise OvertakingError(
            f"firings of actor {graph.names[actor]!r} may overlap and have different times, so a "
            "later one may end first; give the actor a self-channel or a concurrency of 1"
        )
