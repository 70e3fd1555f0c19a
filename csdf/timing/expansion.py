"""Expand a graph into all firings of an iteration, with their earliest starts at a given period.

With every actor's K at its repetition count (`csdf.timing.event_graph`), firing j of iteration n
waits for firing i of iteration n − delay, delay ≥ 0, so the constraints are exact, firing by
firing. The earliest start times of a schedule with period λ are the longest paths to each firing,
where an edge weighs time − λ × delay. The **float** of an edge is by how much its target starts
later than the edge requires. Floats are not negative, so further questions about the schedule are
shortest paths over floats.

The constraints presume that the firings of an actor end in the order in which they start. Firings
may overlap where no channel prevents it, and a later, shorter one might then end before an earlier
one and **overtake** it: its tokens arrive first, and a consumer takes them, because a channel
counts tokens and does not distinguish them. Often the cycles through an actor keep its firings so
far apart that this is impossible. Let f and g be consecutive firings. If some path of constraints
from f to g, over as many iterations as lie between them, takes time(f) − time(g) or longer, then g
ends no earlier than f. If there is such a path for all consecutive firings, the constraints are
exact: whatever leads to a first overtaking lies before it, when tokens have arrived in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.liveness import refuse_deadlock
from csdf.model.consistency import NODE_LIMIT, firings, repetition_vector
from csdf.model.graph import Actor, Channel, Graph
from csdf.model.graph_algorithms import shortest_path, topological_order
from csdf.model.lowered import Lowered, lower, readable
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import maximum_cycle_ratio
from csdf.timing.event_graph import EventGraph
from csdf.timing.throughput import order_error, overtaking, throughput

WORK_LIMIT = 2_000_000
"""Constraints after which firings that are not proved to keep their order count as overtaking."""


class ConstraintPaths:
    """Paths along the constraints of `events`, which has all firings of an iteration."""

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
        """Return the length of the longest path from firing `start` to `target`.

        The path spans `iterations`; the length is in units of 1 / `events.time_unit`, None if there
        is no such path.
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
    """Return the first of `actors` that is not proved to end its firings in order, or None.

    `events` has all firings of an iteration of a live graph; `times` has the duration of each phase
    of each actor, in units of 1 / `events.time_unit`.
    """
    paths = ConstraintPaths(events)
    left = WORK_LIMIT
    for actor in actors:
        first, count = events.first[actor], len(events.firings(actor))
        for place in range(count):
            longer = times[actor][place % len(times[actor])]
            apart = longer - times[actor][(place + 1) % len(times[actor])]
            if apart <= 0:
                continue
            left -= len(events.source)
            if left < 0:
                return actor
            after, iterations = (place + 1) % count, int(place + 1 == count)
            if (paths.longest(first + place, first + after, iterations) or 0) < apart:
                return actor
    return None


@dataclass(frozen=True)
class Expansion:
    """All firings of an iteration; firing `events.first[a] + k` is the k-th of actor a.

    `actors` are the names. `starts` are the earliest start times of iteration 0, in units of
    1 / `unit`; `period` is λ, in the graph's unit of time. `events` are the constraints, whose
    delays are whole iterations.
    """

    actors: tuple[str, ...]
    period: Fraction
    events: EventGraph
    starts: Sequence[int]
    unit: int
    channels: Mapping[int, str]
    """Channels by the number of their arc (`events.arc`)."""

    def firings(self, actor: str) -> range:
        """Return the numbers of the firings of `actor`."""
        return self.events.firings(self.actors.index(actor))

    def start(self, firing: int) -> Fraction:
        """Return when `firing` of iteration 0 starts."""
        return Fraction(self.starts[firing], self.unit)

    def earliest(self, iterations: Sequence[int]) -> list[Fraction]:
        """Return the earliest starts if iteration 0 of firing v is renumbered to `iterations[v]`.

        The starts are those of iteration 0 in the new numbering.
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
        """The firings that wait for each firing, with the floats in units of 1 / `unit`."""
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
        """Return the least sum of floats on a path of at least one edge; None without a path."""
        found = shortest_path(self.leaving.__getitem__, source, target)
        return None if found is None else Fraction(found, self.unit)


def expand(
    graph: Graph, period: Fraction | None = None, shortest: Fraction | None = None
) -> Expansion:
    """Return the expansion of a live `graph` at `period`, by default its shortest period.

    `shortest` is the shortest period, if the caller has computed it.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, `OvertakingError` if firings
    may overtake each other, and `CsdfError` if `period` is too short.
    """
    repetitions = repetition_vector(graph)
    if firings(graph, repetitions) > NODE_LIMIT:
        raise TooLargeError(
            f"an iteration has {readable(firings(graph, repetitions))} firings; "
            f"at most {NODE_LIMIT} can be analysed one by one"
        )
    lowered = lower(graph)
    counts = [repetitions[name] for name in lowered.names]
    unordered = overtaking(lowered)
    if unordered:
        refuse_deadlock(graph)
    elif shortest is None:
        shortest = throughput(graph).period
    events = event_graph.build(lowered, counts, counts)
    if unordered:
        _require_order(lowered, events, unordered)
    # Edges are reversed so that the potentials are walks to, not from, each firing.
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
        raise order_error(graph.names[actor])


def homogeneous(graph: Graph) -> Graph:
    """Return the homogeneous graph (HSDF) of a live `graph`: one actor per firing of an iteration.

    All rates are 1, and initial tokens are the iterations between a firing and what it waits for;
    so there are no capacities or bounds on concurrency. Actor `a[k]` is firing k of `a`. It starts
    when that firing starts, in every iteration of self-timed execution. Firings that may overlap
    start in order, which takes an actor `a[k] starts` without time for each.

    Raises as `expand` does.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> found = homogeneous(Graph("g", actors, (Channel("c", "a", "b", (2,), (1,)),)))
    >>> [actor.name for actor in found.actors]
    ['a[0]', 'b[0]', 'b[1]']
    """
    found = expand(graph)
    events = found.events
    numbers = [(name, k) for name in found.actors for k in range(len(found.firings(name)))]
    ends = [f"{name}[{k}]" for name, k in numbers]
    begins, names = list(ends), set(ends)
    columns = events.source, events.target, events.delay, events.arc
    edges = list(zip(*(column.tolist() for column in columns), strict=True))
    for source, target, _, arc in edges:
        if arc < 0:
            begins[source], begins[target] = f"{ends[source]} starts", f"{ends[target]} starts"
    times = [graph.actor[name].execution_times for name, _ in numbers]
    actors = [
        Actor(end, (own[k % len(own)],))
        for end, own, (_, k) in zip(ends, times, numbers, strict=True)
    ]
    actors += [Actor(begin, (Fraction(0),)) for begin in begins if begin not in names]
    pairs = [(begin, end, 0) for begin, end in zip(begins, ends, strict=True) if begin != end]
    pairs += [
        ((begins if arc < 0 else ends)[source], begins[target], delay)
        for source, target, delay, arc in edges
    ]
    channels = [
        Channel(f"{n}: {source} → {target}", source, target, (1,), (1,), delay)
        for n, (source, target, delay) in enumerate(dict.fromkeys(pairs))
    ]
    return Graph(f"{graph.name} homogeneous".lstrip(), tuple(actors), tuple(channels))
