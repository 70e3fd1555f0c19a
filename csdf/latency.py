"""Latency: from the start of a source's first firing of an iteration to the end of a sink's last.

Three exact figures, since it depends on who decides when the source fires:

- in **self-timed** execution everybody fires as soon as possible. `first` is the latency of the
  first iteration, `steady` the largest of those that recur for ever, `worst` the largest of all. If
  nothing slows the source down to the pace of the sink, iterations queue up and there is no worst.
- with **the source paced** at the period of the graph, `periodic` is the smallest latency of any
  schedule that repeats itself after that period: the longest walk from the source's to the sink's
  firing, where a constraint weighs time − λ × delay (`csdf.expansion`).

Self-timed start times obey x_j(n) = max over constraints of x_i(n − delay) + time, so they are
computed iteration by iteration until the last ones come back, later by a constant. Only what the
sink depends on takes part.

Source: A. H. Ghamarian et al., "Latency minimization for synchronous data flow graphs", DSD 2007.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from csdf.cycle_ratio import maximum_cycle_ratio
from csdf.errors import CsdfError
from csdf.expansion import Expansion, expand
from csdf.graph import Graph

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


def latency(graph: Graph, source: str, sink: str, work_limit: int = WORK_LIMIT) -> Latency:
    """The latency from actor `source` to actor `sink` of a live graph.

    Raises as `csdf.expansion.expand` does, and `CsdfError` if one of the names is no actor, or
    nothing leads from the one to the other.
    """
    for name in (source, sink):
        if name not in graph.actor:
            known = ", ".join(map(repr, list(graph.actor)[:8]))
            raise CsdfError(f"{name!r} is no actor of the graph; there are {known}")
    expansion = expand(graph)
    first, last = expansion.firings(source)[0], expansion.firings(sink)[-1]
    upstream = _ancestors(expansion, expansion.firings(sink))
    if first not in upstream:
        raise CsdfError(f"nothing leads from {source!r} to {sink!r}, so there is no latency")
    float_ = Fraction(0) if first == last else expansion.least_float(first, last)
    assert float_ is not None  # noqa: S101 (the firings of an actor are a cycle of constraints)
    duration = graph.actor[sink].execution_times[-1]
    walk = expansion.start(last) - expansion.start(first) - float_
    behind = _ancestors(expansion, expansion.firings(source))
    follows = _pace(expansion, behind) == _pace(expansion, upstream)
    execution = _Execution(expansion, sorted(upstream), first, last)
    found, recurring = execution.run(work_limit if follows else 1)
    latencies = [Fraction(one, expansion.events.time_unit) + duration for one in found]
    reason = None
    if not follows:
        reason = f"nothing slows {source!r} down to the pace of {sink!r}, so iterations queue up"
    elif recurring is None:
        reason = f"the execution did not recur within {len(found)} iterations"
    return Latency(
        source,
        sink,
        latencies[0],
        None if recurring is None else max(latencies[recurring:]),
        None if recurring is None else max(latencies),
        reason,
        walk + duration,
    )


def _ancestors(expansion: Expansion, firings: Collection[int]) -> set[int]:
    """All firings on which `firings` depend, themselves included."""
    waits: list[list[int]] = [[] for _ in range(expansion.events.nodes)]
    ends = (expansion.events.source.tolist(), expansion.events.target.tolist())
    for source, target in zip(*ends, strict=True):
        waits[target].append(source)
    found, queue = set(firings), deque(firings)
    while queue:
        for source in waits[queue.popleft()]:
            if source not in found:
                found.add(source)
                queue.append(source)
    return found


def _pace(expansion: Expansion, firings: set[int]) -> Fraction | None:
    """The period of these firings by themselves; they depend on no others."""
    events = expansion.events
    inside = np.isin(events.target, np.array(sorted(firings)))
    return maximum_cycle_ratio(
        events.nodes,
        events.source[inside],
        events.target[inside],
        events.time[inside],
        events.delay[inside],
    ).ratio


class _Execution:
    """Start times of `firings`, which depend on no others, iteration by iteration."""

    def __init__(self, expansion: Expansion, firings: Sequence[int], first: int, last: int) -> None:
        place = {firing: i for i, firing in enumerate(firings)}
        self._waits: list[list[tuple[int, int, int]]] = [[] for _ in firings]
        events = expansion.events
        for source, target, time, delay in zip(
            events.source.tolist(),
            events.target.tolist(),
            events.time.tolist(),
            events.delay.tolist(),
            strict=True,
        ):
            if target in place:
                self._waits[place[target]].append((place[source], time, delay))
        self._constraints = sum(map(len, self._waits))
        self._memory = max((d for waits in self._waits for _, _, d in waits), default=0)
        self._order = self._within_iteration()
        self._first, self._last = place[first], place[last]

    def run(self, work_limit: int) -> tuple[list[int], int | None]:
        """From start to start, per iteration; and from which on they recur (None: not found)."""
        recent: deque[list[int]] = deque(maxlen=max(1, self._memory))
        seen: dict[tuple[int, ...], int] = {}
        found: list[int] = []
        work = 0
        while not found or work < work_limit:
            now = self._iteration(recent)
            recent.append(now)
            found.append(now[self._last] - now[self._first])
            work += self._constraints + len(now)
            if len(found) >= self._memory:
                base = now[self._first]
                state = tuple(start - base for starts in recent for start in starts)
                if state in seen:
                    return found[:-1], seen[state]
                seen[state] = len(found) - 1
        return found, None

    def _iteration(self, recent: Sequence[Sequence[int]]) -> list[int]:
        now = [0] * len(self._waits)
        done = len(recent)
        for firing in self._order:
            start = 0
            for source, time, delay in self._waits[firing]:
                if delay == 0:
                    start = max(start, now[source] + time)
                elif delay <= done:
                    start = max(start, recent[-delay][source] + time)
            now[firing] = start
        return now

    def _within_iteration(self) -> list[int]:
        """The firings in an order in which those of one iteration wait for each other."""
        missing = [sum(delay == 0 for _, _, delay in waits) for waits in self._waits]
        leads: list[list[int]] = [[] for _ in self._waits]
        for target, waits in enumerate(self._waits):
            for source, _, delay in waits:
                if delay == 0:
                    leads[source].append(target)
        order = [firing for firing, count in enumerate(missing) if count == 0]
        for firing in order:
            for target in leads[firing]:
                missing[target] -= 1
                if missing[target] == 0:
                    order.append(target)
        return order
