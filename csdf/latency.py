"""Latency: from the start of a source's first firing of an iteration to the end of a sink's last.

Three exact figures, since it depends on who decides when the source fires:

- in **self-timed** execution everybody fires as soon as possible. `first` is the latency of the
  first iteration, `steady` the largest of those that recur for ever, `worst` the largest of all. If
  nothing slows the source down to the pace of the sink, iterations queue up and there is no worst.
- with **the source paced** at the period of the graph, `periodic` is the smallest latency of any
  schedule that repeats itself after that period: the longest walk from the source's to the sink's
  firing, where a constraint weighs time − λ × delay (`csdf.expansion`).

How the self-timed execution is followed until it recurs is in `csdf.recurrence`. Only what the sink
depends on takes part.

Source: A. H. Ghamarian et al., "Latency minimization for synchronous data flow graphs", DSD 2007.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import CsdfError
from csdf.expansion import Expansion, expand
from csdf.graph import Graph
from csdf.orders import Ordered, ordered
from csdf.recurrence import Execution

WORK_LIMIT = 4_000_000
"""Constraints evaluated until the execution is to recur."""


@dataclass(frozen=True, slots=True)
class Latency:
    """See the module's docstring; all in the graph's unit of time.

    `steady` and `worst` are None if they do not exist or were not found; `reason` tells which.
    """

    source: str
    sink: str
    first: Fraction
    steady: Fraction | None
    worst: Fraction | None
    reason: str | None
    periodic: Fraction

    def as_json(self) -> dict[str, str | None]:
        """For `json.dumps`."""
        figures = {
            "first": self.first,
            "steady": self.steady,
            "worst": self.worst,
            "periodic": self.periodic,
        }
        named: dict[str, str | None] = {"source": self.source, "sink": self.sink}
        named |= {key: None if one is None else str(one) for key, one in figures.items()}
        return {**named, "reason": self.reason}


def latency(
    graph: Graph | Ordered, source: str, sink: str, work_limit: int = WORK_LIMIT
) -> Latency:
    """The latency from actor `source` to actor `sink` of a live graph, on processors or not.

    For a pipelined order the execution begins with its prologue (`csdf.prologue`).

    Raises as `csdf.expansion.expand` does, and `CsdfError` if one of the names is no actor, or
    nothing leads from the one to the other.
    """
    placed = graph if isinstance(graph, Ordered) else ordered(graph, {})
    graph = placed.graph
    for name in (source, sink):
        if name not in graph.actor:
            known = ", ".join(map(repr, list(graph.actor)[:8]))
            raise CsdfError(f"{name!r} is no actor of the graph; there are {known}")
    expansion = expand(graph)
    first = _place(expansion, source, -placed.fired[source])
    last = _place(expansion, sink, len(expansion.firings(sink)) - 1 - placed.fired[sink])
    upstream = _ancestors(expansion, expansion.firings(sink))
    if first.firing not in upstream:
        raise CsdfError(f"nothing leads from {source!r} to {sink!r}, so there is no latency")
    same = first.firing == last.firing
    float_ = Fraction(0) if same else expansion.least_float(first.firing, last.firing)
    assert float_ is not None  # noqa: S101 (the firings of an actor are a cycle of constraints)
    duration = graph.actor[sink].execution_times[last.number % graph.actor[sink].phases]
    walk = expansion.start(last.firing) - expansion.start(first.firing) - float_
    walk += (last.iteration - first.iteration) * expansion.period
    execution = Execution(expansion, placed, upstream)
    follows = execution.is_held(first.firing)
    found = _self_timed(execution, first, last, work_limit if follows else 0)
    latencies = [Fraction(one, expansion.events.time_unit) + duration for one in found.latencies]
    reason = None
    if not follows:
        reason = f"nothing slows {source!r} down to the pace of {sink!r}, so iterations queue up"
    elif found.recurs is None:
        reason = f"the execution did not recur within {len(latencies)} iterations"
    return Latency(
        source,
        sink,
        latencies[0],
        None if found.recurs is None or reason else max(latencies[found.recurs :]),
        None if found.recurs is None or reason else max(latencies),
        reason,
        walk + duration,
    )


@dataclass(frozen=True, slots=True)
class _SelfTimed:
    """From start to start, per iteration; and from which on they recur (None: not found)."""

    latencies: Sequence[int]
    recurs: int | None


def _self_timed(execution: Execution, first: _Place, last: _Place, work_limit: int) -> _SelfTimed:
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
