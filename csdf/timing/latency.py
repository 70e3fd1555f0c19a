"""Compute the latency from a source to a sink: the time that an iteration takes between them.

It is measured from the start of the source's first firing of an iteration to the end of the sink's
last firing of the same iteration. If initial tokens lie between, the sink's iteration k need not
wait for the source's iteration k at all. Then the sink's iteration k + `distance` counts, the first
that does wait for it. The distance is the least number of iterations on any path of constraints
from the one firing to the other.

The latency depends on what decides when the source fires:

- In **self-timed** execution every actor fires as soon as possible. `first` is the latency of the
  first iteration, `steady` the largest of those that recur for ever, `worst` the largest of all. If
  nothing slows the source down to the pace of the sink, iterations queue up and there is no worst.
- With **the source paced** at the period of the graph, `periodic` is the smallest latency of any
  schedule that repeats itself after that period: the longest path from the source's to the sink's
  firing, where a constraint weighs time − λ × delay (`csdf.timing.expansion`).
- With the source paced as slowly as it may be, `minimal` is the smallest latency of all schedules:
  the longest path from the source's to the sink's firing that spans `distance` iterations.

Only actors on which the sink depends take part.

**Self-timed execution by constraints.** Start times obey x_j(n) = max over constraints of
x_i(n − delay) + time, so they are computed iteration by iteration, until they recur. Let λ be the
period of the firings, and S their earliest starts in a schedule of period λ. Then
y_j(n) = x_j(n) − n λ − S_j obeys y_j(n) = max of y_i(n − delay) − float, so it never exceeds the
largest value before it. Firings that depend on a critical cycle (one whose floats are all 0) are
**held** at the period: their y recur. The others run ahead, and their y fall without end. They
cease to matter at the latest when all of their y are below all y of held firings from then on. So
the starts recur once the y of the held firings are, as far back as any constraint reaches, what
they were before, provided that by then the others had ceased to matter.

If firings may overtake each other, the execution itself is recorded (`csdf.timing.selftimed`).

Sources: A. H. Ghamarian et al., "Latency minimization for synchronous data flow graphs", DSD 2007;
for the distance, the latency analyses of S. Stuijk, M. Geilen, T. Basten, "SDF³: SDF for free",
ACSD 2006, which count what the sink can fire while the source does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from csdf.errors import CsdfError, OvertakingError
from csdf.execution.static_orders import Ordered, ordered
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.graph_algorithms import reachable, shortest_path, topological_order
from csdf.model.lowered import lower
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import maximum_cycle_ratio
from csdf.timing.event_graph import EventGraph
from csdf.timing.expansion import ConstraintPaths, Expansion, expand
from csdf.timing.selftimed import record
from csdf.timing.throughput import throughput

WORK_LIMIT = 4_000_000
"""Evaluations of constraints after which the search for a recurrence ends."""


def iterations_apart(
    events: EventGraph, source: int, sink: int, without: Collection[int] = ()
) -> int | None:
    """Return the least sum of delays on a path from firing `source` to `sink`; None without a path.

    `events` must have all firings of an iteration, so that delays are integers ≥ 0. Constraints of
    the arcs `without` do not count.
    """
    if source == sink:
        return 0
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(events.nodes)]
    columns = (events.source, events.target, events.delay, events.arc)
    for before, after, delay, arc in zip(*(c.tolist() for c in columns), strict=True):
        if arc not in without:
            leaving[before].append((after, delay))
    return shortest_path(leaving.__getitem__, source, sink)


@dataclass(frozen=True)
class Starts:
    """Start times: `begins[k][w]` is that of watched firing w in the k-th iteration.

    The unit is 1 / `events.time_unit`; a firing that does not exist has None. From iteration
    `recurs` on the starts recur every `length` iterations, later by `length` × λ; both are None if
    no recurrence was found.
    """

    begins: Sequence[Sequence[int | None]]
    recurs: int | None
    length: int | None


class SelfTimedFirings:
    """The self-timed execution of `firings`, which must depend on no others.

    The expansion's iteration 0 comes after the prologue of `placed`; firings of the prologue are in
    negative iterations. Other firings of negative iterations do not exist, but pass on the turn in
    the order of their processor.
    """

    def __init__(self, expansion: Expansion, placed: Ordered, firings: Collection[int]) -> None:
        chosen = sorted(firings)
        self._place = {firing: i for i, firing in enumerate(chosen)}
        events = expansion.events
        inside = np.isin(events.target, np.array(chosen))
        source, target = (
            np.searchsorted(np.array(chosen), ends[inside])
            for ends in (events.source, events.target)
        )
        order_arcs = [number for number, name in expansion.channels.items() if name in placed.turns]
        columns = (
            source,
            target,
            events.time[inside],
            events.delay[inside],
            np.isin(events.arc[inside], np.array(order_arcs, np.int64)),
        )
        edges = list(zip(*(column.tolist() for column in columns), strict=True))
        self._waits: list[list[tuple[int, int, int, bool]]] = [[] for _ in chosen]
        self._lookback = [0] * len(chosen)
        for from_, to, time, delay, is_order in edges:
            self._waits[to].append((from_, time, delay, is_order))
            self._lookback[from_] = max(self._lookback[from_], delay)
        self._memory = max(self._lookback, default=0) or 1
        self._work = len(edges) + len(chosen) + sum(self._lookback)
        # Edges are reversed so that the potentials are paths to, not from, each firing.
        result = maximum_cycle_ratio(len(chosen), target, source, *columns[2:4])
        assert result.ratio is not None  # noqa: S101 (the graph is live)
        self._pace = result.ratio
        self._potentials = [int(value) for value in result.potentials]
        self._held = self._find_held()
        self._order = self._within_iteration()
        # Iteration −k of the expansion has those firings that are within the last `fired`.
        self._begins = [0] * len(chosen)
        for actor in expansion.actors:
            own = expansion.firings(actor)
            for number, firing in enumerate(own):
                if firing in self._place:
                    begins = -((placed.fired[actor] + number) // len(own))
                    self._begins[self._place[firing]] = begins
        self.earliest = min(self._begins)
        """The first iteration, in the expansion's numbering, that has any of the firings."""

    def is_held(self, firing: int) -> bool:
        """Return whether `firing` is held at the period, and does not run ahead."""
        return self._held[self._place[firing]]

    def run(self, watched: Sequence[int], work_limit: int, needed: int) -> Starts:
        """Return the starts of the firings `watched` until they recur and `needed` more iterations.

        After `work_limit` evaluations of constraints without a recurrence, the starts end after
        `needed` iterations.
        """
        places = [self._place[firing] for firing in watched]
        recent: deque[list[int | None]] = deque(maxlen=self._memory)
        begins: list[list[int | None]] = []
        memory = _Memory(self._pace.denominator, self._pace.numerator, self._potentials)
        recurs = length = None
        work, end = 0, needed
        while len(begins) < end or (length is None and work < work_limit):
            now = self._iteration(self.earliest + len(begins), recent)
            recent.append(now)
            begins.append([now[place] for place in places])
            work += self._work
            if length is None and self.earliest + len(begins) >= self._memory:
                length = memory.recurred_after(len(begins), recent, self._held, self._lookback)
                if length is not None:
                    recurs = len(begins) - length
                    end = len(begins) + needed
        return Starts(begins, recurs, length)

    def _iteration(
        self, iteration: int, recent: Sequence[Sequence[int | None]]
    ) -> list[int | None]:
        """Return the starts of an iteration.

        For a firing that does not exist, that is when its processor passes it (None: at once).
        """
        now: list[int | None] = [None] * len(self._waits)
        done = len(recent)
        for firing in self._order:
            exists = iteration >= self._begins[firing]
            start = 0 if exists else None
            for source, time, delay, is_order in self._waits[firing]:
                if delay > done:
                    continue
                before = iteration - delay >= self._begins[source]
                end = now[source] if delay == 0 else recent[-delay][source]
                if end is None or not (is_order or (before and exists)):
                    continue
                if before:
                    end += time
                if start is None or end > start:
                    start = end
            now[firing] = start
        return now

    def _within_iteration(self) -> list[int]:
        """Return a topological order of the firings by their waits within an iteration."""
        waits = [[source for source, _, delay, _ in own if delay == 0] for own in self._waits]
        order, rest = topological_order(waits)
        assert not any(rest)  # noqa: S101 (the graph is live)
        return order

    def _find_held(self) -> list[bool]:
        if not self._pace:
            return [True] * len(self._waits)
        scale, turn, first = self._pace.denominator, self._pace.numerator, self._potentials
        tight = [
            [
                source
                for source, time, delay, _ in own
                if first[target] - first[source] == time * scale - delay * turn
            ]
            for target, own in enumerate(self._waits)
        ]
        _, critical = topological_order(tight)
        waiting: list[list[int]] = [[] for _ in critical]
        for target, own in enumerate(self._waits):
            for source, *_ in own:
                waiting[source].append(target)
        held = reachable(
            waiting.__getitem__, (v for v, on_cycle in enumerate(critical) if on_cycle)
        )
        return [firing in held for firing in range(len(critical))]


class _Memory:
    """The y of the held firings in earlier iterations, and the largest y of the others then."""

    def __init__(self, scale: int, turn: int, potentials: Sequence[int]) -> None:
        self._scale, self._turn, self._potentials = scale, turn, potentials
        self._seen: dict[tuple[int, ...], tuple[int, int | None]] = {}
        self._least: list[int] = []
        """The least y of the held firings, by iteration."""

    def recurred_after(
        self,
        iteration: int,
        recent: Sequence[Sequence[int | None]],
        held: Sequence[bool],
        lookback: Sequence[int],
    ) -> int | None:
        """Return how many iterations ago all that matters was the same; None if it never was."""
        state: list[int] = []
        # No firing starts before 0. That is a lower bound as well, and its y falls with time.
        others: int | None = -iteration * self._turn if self._turn else None
        least: int | None = None
        for firing, back in enumerate(lookback):
            for k in range(max(1, back)):
                start = recent[-1 - k][firing]
                assert start is not None  # noqa: S101 (nothing refers to times before the prologue)
                y = start * self._scale - self._potentials[firing] - (iteration - k) * self._turn
                if not held[firing]:
                    others = y if others is None else max(others, y)
                    continue
                if k == 0 and (least is None or y < least):
                    least = y
                if k < back:
                    state.append(y)
        self._least.append(0 if least is None else least)
        now, key = len(self._least), tuple(state)
        if key in self._seen:
            then, ahead = self._seen[key]
            if ahead is None or ahead < min(self._least[then:now]):
                return now - then
        self._seen[key] = now, others
        return None


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies as in the module's docstring, in the unit of the graph's execution times.

    `steady` and `worst` are None if they do not exist or were not found; `reason` is a sentence
    that says which. `periodic` and `minimal` are None if firings may overtake each other, `minimal`
    also for pipelined orders.
    """

    source: str
    sink: str
    distance: int
    first: Fraction
    steady: Fraction | None
    worst: Fraction | None
    reason: str | None
    periodic: Fraction | None
    minimal: Fraction | None


def latency(
    graph: Graph | Ordered, source: str, sink: str, work_limit: int = WORK_LIMIT
) -> Latency:
    """Return the latency from actor `source` to actor `sink` of a live graph, or of static orders.

    With pipelined orders the execution begins with their prologue (`csdf.execution.prologue`).
    Raises as `csdf.timing.expansion.expand` does, and `CsdfError` if a name is not an actor, or if
    no path leads from the source to the sink.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> channel = Channel("c", "a", "b", (1,), (1,), capacity=2)
    >>> found = latency(Graph("g", actors, (channel,)), "a", "b")
    >>> found.first, found.steady, found.minimal
    (Fraction(5, 1), Fraction(6, 1), Fraction(5, 1))
    """
    placed = graph if isinstance(graph, Ordered) else ordered(graph, {})
    graph = placed.graph
    for name in (source, sink):
        if name not in graph.actor:
            known = ", ".join(map(repr, list(graph.actor)[:8]))
            raise CsdfError(f"{name!r} is not an actor of the graph; its actors are {known}")
    try:
        expansion = expand(graph)
    except OvertakingError:
        if any(placed.fired.values()):
            raise
        return _recorded(placed, source, sink, work_limit)
    return _by_constraints(expansion, placed, source, sink, work_limit)


def _by_constraints(
    expansion: Expansion, placed: Ordered, source: str, sink: str, work_limit: int
) -> Latency:
    first = _place(expansion, source, -placed.fired[source])
    last = _place(expansion, sink, len(expansion.firings(sink)) - 1 - placed.fired[sink])
    upstream = _ancestors(expansion, expansion.firings(sink))
    if first.firing not in upstream:
        raise _unconnected(source, sink)
    order_arcs = {number for number, name in expansion.channels.items() if name in placed.turns}
    apart = iterations_apart(expansion.events, first.firing, last.firing, order_arcs)
    # If only static orders connect the two firings, the distance is 0.
    distance = 0 if apart is None else apart + first.iteration - last.iteration
    last = replace(last, iteration=last.iteration + distance)
    same = first.firing == last.firing
    float_ = Fraction(0) if same else expansion.least_float(first.firing, last.firing)
    assert float_ is not None  # noqa: S101 (the firings of an actor are a cycle of constraints)
    times = placed.graph.actor[sink].execution_times
    duration = times[last.number % len(times)]
    walk = expansion.start(last.firing) - expansion.start(first.firing) - float_
    walk += (last.iteration - first.iteration) * expansion.period
    way = None
    if not any(placed.fired.values()):
        way = ConstraintPaths(expansion.events).longest(first.firing, last.firing, distance)
    unit = expansion.events.time_unit
    execution = SelfTimedFirings(expansion, placed, upstream)
    follows = execution.is_held(first.firing)
    found = _self_timed(execution, first, last, work_limit if follows else 0)
    latencies = [Fraction(one, unit) + duration for one in found.latencies]
    return _with_steady_state(
        Latency(
            source,
            sink,
            distance,
            latencies[0],
            None,
            None,
            None if follows else _queues_up(source, sink),
            walk + duration,
            None if way is None else Fraction(way, unit) + duration,
        ),
        latencies,
        found.recurs,
    )


def _recorded(placed: Ordered, source: str, sink: str, work_limit: int) -> Latency:
    graph = placed.graph
    upstream = _upstream(graph, sink)
    if source not in upstream.actor:
        raise _unconnected(source, sink)
    repetitions = repetition_vector(graph)
    paces = [_pace(part, repetitions) for part in (_upstream(graph, source), upstream)]
    follows = paces[0] == paces[1]
    lowered = lower(upstream)
    counts = [repetitions[name] for name in lowered.names]
    events = event_graph.build(lowered, counts, counts)
    first, last = (events.first[lowered.names.index(name)] for name in (source, sink))
    last += repetitions[sink] * graph.actor[sink].phases - 1
    order_arcs = {
        number
        for number, arc in enumerate(lowered.arcs)
        if arc.channel is not None and arc.channel.name in placed.turns
    }
    distance = iterations_apart(events, first, last, order_arcs) or 0
    found = record(upstream, repetitions, sink, work_limit // 4 if follows else 0, distance)
    begins, ends = found.begins(source), found.ends(sink)[distance:]
    latencies = [end - begin for begin, end in zip(begins, ends, strict=False)]
    recurs = max(found.recurs[source], found.recurs[sink]) if found.length else None
    reason = None if follows else _queues_up(source, sink)
    return _with_steady_state(
        Latency(source, sink, distance, latencies[0], None, None, reason, None, None),
        latencies,
        recurs,
    )


def _with_steady_state(
    found: Latency, latencies: Sequence[Fraction], recurs: int | None
) -> Latency:
    """Return `found` with the steady state of a self-timed execution, or why there is none."""
    if found.reason is not None:
        return found
    if recurs is None:
        reason = f"the execution did not recur within {len(latencies)} iterations"
        return replace(found, reason=reason)
    return replace(found, steady=max(latencies[recurs:]), worst=max(latencies))


def _unconnected(source: str, sink: str) -> CsdfError:
    return CsdfError(f"no path leads from {source!r} to {sink!r}, so there is no latency")


def _queues_up(source: str, sink: str) -> str:
    return f"nothing slows {source!r} down to the pace of {sink!r}, so iterations queue up"


@dataclass(frozen=True, slots=True)
class _SelfTimed:
    """Latencies from start to start by iteration, which recur from `recurs` on (None: unknown)."""

    latencies: Sequence[int]
    recurs: int | None


def _self_timed(
    execution: SelfTimedFirings, first: _Place, last: _Place, work_limit: int
) -> _SelfTimed:
    from_, to = first.iteration - execution.earliest, last.iteration - execution.earliest
    found = execution.run([first.firing, last.firing], work_limit, max(from_, to) + 1)
    latencies = []
    for k in range(len(found.begins) - max(from_, to)):
        begin, end = found.begins[k + from_][0], found.begins[k + to][1]
        assert begin is not None  # noqa: S101 (iteration 0 of the execution has begun)
        assert end is not None  # noqa: S101
        latencies.append(end - begin)
    return _SelfTimed(latencies, found.recurs)


@dataclass(frozen=True, slots=True)
class _Place:
    """A firing of the expansion, its index among its actor's firings, and its iteration."""

    firing: int
    number: int
    iteration: int


def _place(expansion: Expansion, actor: str, number: int) -> _Place:
    """Locate firing `number` of `actor`, counted from the expansion's initial state on."""
    own = expansion.firings(actor)
    iteration, place = divmod(number, len(own))
    return _Place(own[place], place, iteration)


def _ancestors(expansion: Expansion, firings: Collection[int]) -> set[int]:
    """Return all firings on which `firings` depend, these included."""
    waits: list[list[int]] = [[] for _ in range(expansion.events.nodes)]
    ends = (expansion.events.source.tolist(), expansion.events.target.tolist())
    for source, target in zip(*ends, strict=True):
        waits[target].append(source)
    return reachable(waits.__getitem__, firings)


def _upstream(graph: Graph, actor: str) -> Graph:
    """Return the part of `graph` on which `actor` depends, the actor included."""
    waits: dict[str, list[str]] = {name: [] for name in graph.actor}
    for channel in graph.channels:
        waits[channel.target].append(channel.source)
        if channel.capacity is not None:
            waits[channel.source].append(channel.target)
    found = reachable(waits.__getitem__, [actor])
    return Graph(
        graph.name,
        tuple(one for one in graph.actors if one.name in found),
        tuple(one for one in graph.channels if {one.source, one.target} <= found),
    )


def _pace(part: Graph, repetitions: Mapping[str, int]) -> Fraction:
    """Return the period of `part`, a connected graph, per iteration of `repetitions`."""
    name, own = part.actors[0].name, repetition_vector(part)
    return throughput(part).period * Fraction(repetitions[name], own[name])
