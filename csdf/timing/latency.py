"""Latency: from the start of a source's first firing of an iteration until all firings of the sink
have ended that belong to it.

Those are the firings of the sink's iteration of the same number, or, if initial tokens lie between,
of the first one that waits for the source's (`csdf.timing.dependence`): `distance` is how many
later.

It depends on who decides when the source fires:

- in **self-timed** execution everybody fires as soon as possible. `first` is the latency of the
  first iteration, `steady` the largest of those that recur for ever, `worst` the largest of all. If
  nothing slows the source down to the pace of the sink, iterations queue up and there is no worst.
- with **the source paced** at the period of the graph, `periodic` is the smallest latency of any
  schedule that repeats itself after that period: the longest walk from the source's to the sink's
  firing, where a constraint weighs time − λ × delay (`csdf.timing.expansion`).
- with the source paced as slowly as it may be, `minimal` is the smallest latency of all schedules:
  the longest way from the source's to the sink's firing that is no more iterations long.

How the self-timed execution is followed until it recurs is in `csdf.timing.recurrence`, or, for
firings that may overtake each other, in `csdf.timing.recording`. Only what the sink depends on
takes part.

Source: A. H. Ghamarian et al., "Latency minimization for synchronous data flow graphs", DSD 2007.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.errors import CsdfError, OvertakingError
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.lowered import lower
from csdf.model.static_orders import Ordered, ordered
from csdf.timing import event_graph
from csdf.timing.dependence import iterations_apart
from csdf.timing.expansion import Expansion, expand
from csdf.timing.in_order import Ways
from csdf.timing.recording import all_before, pace, record
from csdf.timing.recurrence import SelfTimedFirings

WORK_LIMIT = 4_000_000
"""Constraints evaluated until the execution is to recur."""


@dataclass(frozen=True, slots=True)
class Latency:
    """See the module's docstring; all in the graph's unit of time.

    `steady` and `worst` are None if they do not exist or were not found; `reason` says which.
    `periodic` and `minimal` are None where firings may overtake each other, `minimal` for pipelined
    orders, too.
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

    def as_json(self) -> dict[str, str | int | None]:
        """For `json.dumps`."""
        figures = {
            "first": self.first,
            "steady": self.steady,
            "worst": self.worst,
            "periodic": self.periodic,
            "minimal": self.minimal,
        }
        named: dict[str, str | int | None] = {
            "source": self.source,
            "sink": self.sink,
            "distance": self.distance,
        }
        named |= {key: None if one is None else str(one) for key, one in figures.items()}
        return {**named, "reason": self.reason}


def latency(
    graph: Graph | Ordered, source: str, sink: str, work_limit: int = WORK_LIMIT
) -> Latency:
    """The latency from actor `source` to actor `sink` of a live graph, on processors or not.

    For a pipelined order the execution begins with its prologue (`csdf.execution.prologue`).

    Raises as `csdf.timing.expansion.expand` does, and `CsdfError` if one of the names is no actor,
    or nothing leads from the one to the other.
    """
    placed = graph if isinstance(graph, Ordered) else ordered(graph, {})
    graph = placed.graph
    for name in (source, sink):
        if name not in graph.actor:
            known = ", ".join(map(repr, list(graph.actor)[:8]))
            raise CsdfError(f"{name!r} is no actor of the graph; there are {known}")
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
        raise _no_way(source, sink)
    turns = {number for number, name in expansion.channels.items() if name in placed.turns}
    apart = iterations_apart(expansion.events, first.firing, last.firing, turns)
    # Where only taking turns leads from the one to the other, it is the same iteration.
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
        way = Ways(expansion.events).longest(first.firing, last.firing, distance)
    unit = expansion.events.time_unit
    execution = SelfTimedFirings(expansion, placed, upstream)
    follows = execution.is_held(first.firing)
    found = _self_timed(execution, first, last, work_limit if follows else 0)
    latencies = [Fraction(one, unit) + duration for one in found.latencies]
    return _summed_up(
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
    upstream = all_before(graph, sink)
    if source not in upstream.actor:
        raise _no_way(source, sink)
    repetitions = repetition_vector(graph)
    paces = [pace(part, repetitions) for part in (all_before(graph, source), upstream)]
    follows = paces[0] == paces[1]
    lowered = lower(upstream)
    counts = [repetitions[name] for name in lowered.names]
    events = event_graph.build(lowered, counts, counts)
    first, last = (events.first[lowered.names.index(name)] for name in (source, sink))
    last += repetitions[sink] * graph.actor[sink].phases - 1
    turns = {
        number
        for number, arc in enumerate(lowered.arcs)
        if arc.channel is not None and arc.channel.name in placed.turns
    }
    distance = iterations_apart(events, first, last, turns) or 0
    found = record(upstream, repetitions, sink, work_limit // 4 if follows else 0, distance)
    begins, ends = found.begins(source), found.ends(sink)[distance:]
    latencies = [end - begin for begin, end in zip(begins, ends, strict=False)]
    recurs = max(found.recurs[source], found.recurs[sink]) if found.length else None
    reason = None if follows else _queues_up(source, sink)
    return _summed_up(
        Latency(source, sink, distance, latencies[0], None, None, reason, None, None),
        latencies,
        recurs,
    )


def _summed_up(found: Latency, latencies: Sequence[Fraction], recurs: int | None) -> Latency:
    """`found` with what the latencies of a self-timed execution say, or why they do not."""
    if found.reason is not None:
        return found
    if recurs is None:
        reason = f"the execution did not recur within {len(latencies)} iterations"
        return replace(found, reason=reason)
    return replace(found, steady=max(latencies[recurs:]), worst=max(latencies))


def _no_way(source: str, sink: str) -> CsdfError:
    return CsdfError(f"nothing leads from {source!r} to {sink!r}, so there is no latency")


def _queues_up(source: str, sink: str) -> str:
    return f"nothing slows {source!r} down to the pace of {sink!r}, so iterations queue up"


@dataclass(frozen=True, slots=True)
class _SelfTimed:
    """From start to start, per iteration; and from which on they recur (None: not found)."""

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
    """A firing of the expansion, its number within its actor's, and the expansion's iteration that
    it is in when it is the wanted one of iteration 0.
    """

    firing: int
    number: int
    iteration: int


def _place(expansion: Expansion, actor: str, number: int) -> _Place:
    """Where firing `number` of `actor` is, counted from the expansion's initial state on."""
    own = expansion.firings(actor)
    iteration, place = divmod(number, len(own))
    return _Place(own[place], place, iteration)


def _ancestors(expansion: Expansion, firings: Collection[int]) -> set[int]:
    """All firings on which `firings` depend, themselves included."""
    waits: list[list[int]] = [[] for _ in range(expansion.events.nodes)]
    ends = (expansion.events.source.tolist(), expansion.events.target.tolist())
    for source, target in zip(*ends, strict=True):
        waits[target].append(source)
    found, queue = set(firings), list(firings)
    for target in queue:  # grows meanwhile
        for source in waits[target]:
            if source not in found:
                found.add(source)
                queue.append(source)
    return found
