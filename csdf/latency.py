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
from csdf.orders import Ordered, ordered

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
    behind = _ancestors(expansion, expansion.firings(source))
    follows = _pace(expansion, behind) == _pace(expansion, upstream)
    execution = _Execution(expansion, placed, sorted(upstream), first, last)
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
    """Start times of `firings`, which depend on no others, iteration by iteration.

    The expansion's iteration 0 comes after the prologue; what was fired then is in earlier ones.
    Their other firings do not exist, except that on its processor one passes on the turn.
    """

    def __init__(
        self,
        expansion: Expansion,
        placed: Ordered,
        firings: Sequence[int],
        first: _Place,
        last: _Place,
    ) -> None:
        place = {firing: i for i, firing in enumerate(firings)}
        self._waits: list[list[tuple[int, int, int, bool]]] = [[] for _ in firings]
        events = expansion.events
        turns = {number for number, name in expansion.channels.items() if name in placed.turns}
        for source, target, time, delay, arc in zip(
            events.source.tolist(),
            events.target.tolist(),
            events.time.tolist(),
            events.delay.tolist(),
            events.arc.tolist(),
            strict=True,
        ):
            if target in place:
                self._waits[place[target]].append((place[source], time, delay, arc in turns))
        self._constraints = sum(map(len, self._waits))
        self._memory = max((d for waits in self._waits for _, _, d, _ in waits), default=0) or 1
        self._order = self._within_iteration()
        # Iteration −k of the expansion has those firings that are within the last `ahead`.
        self._begins = [0] * len(firings)
        for actor in expansion.actors:
            own = expansion.firings(actor)
            for number, firing in enumerate(own):
                if firing in place:
                    self._begins[place[firing]] = -((placed.fired[actor] + number) // len(own))
        self._first, self._last = place[first.firing], place[last.firing]
        self._offsets = first.iteration, last.iteration

    def run(self, work_limit: int) -> tuple[list[int], int | None]:
        """From start to start, per iteration; and from which on they recur (None: not found)."""
        recent: deque[list[int | None]] = deque(maxlen=self._memory)
        seen: dict[tuple[int | None, ...], int] = {}
        begins: list[int | None] = []
        ends: list[int | None] = []
        earliest = min(self._begins)
        from_, to = (offset - earliest for offset in self._offsets)
        iteration, work, recurs, length = earliest, 0, -1, 0
        while True:
            now = self._iteration(iteration, recent)
            recent.append(now)
            begins.append(now[self._first])
            ends.append(now[self._last])
            iteration += 1
            work += self._constraints + len(now)
            whole = len(begins) - max(from_, to)
            if whole < 1:
                continue
            if recurs < 0 and iteration >= self._memory:
                base = now[self._first] or 0
                state = tuple(None if s is None else s - base for r in recent for s in r)
                if state in seen:
                    recurs, length = seen[state], len(begins) - seen[state]
                seen[state] = len(begins)
            if recurs >= 0 and whole >= recurs + length:
                break
            if recurs < 0 and work >= work_limit:
                break
        found = []
        for k in range(whole):
            begin, end = begins[k + from_], ends[k + to]
            assert begin is not None  # noqa: S101 (iteration 0 of the execution has begun)
            assert end is not None  # noqa: S101
            found.append(end - begin)
        return found, None if recurs < 0 else recurs

    def _iteration(
        self, iteration: int, recent: Sequence[Sequence[int | None]]
    ) -> list[int | None]:
        """Starts; for what does not exist, when its processor passes it by (None: at once)."""
        now: list[int | None] = [None] * len(self._waits)
        done = len(recent)
        for firing in self._order:
            exists = iteration >= self._begins[firing]
            start = 0 if exists else None
            for source, time, delay, is_turn in self._waits[firing]:
                if delay > done:
                    continue
                before = iteration - delay >= self._begins[source]
                end = now[source] if delay == 0 else recent[-delay][source]
                if end is None or not (is_turn or (before and exists)):
                    continue
                if before:
                    end += time
                if start is None or end > start:
                    start = end
            now[firing] = start
        return now

    def _within_iteration(self) -> list[int]:
        """The firings in an order in which those of one iteration wait for each other."""
        missing = [sum(delay == 0 for _, _, delay, _ in waits) for waits in self._waits]
        leads: list[list[int]] = [[] for _ in self._waits]
        for target, waits in enumerate(self._waits):
            for source, _, delay, _ in waits:
                if delay == 0:
                    leads[source].append(target)
        order = [firing for firing, count in enumerate(missing) if count == 0]
        for firing in order:
            for target in leads[firing]:
                missing[target] -= 1
                if missing[target] == 0:
                    order.append(target)
        return order
