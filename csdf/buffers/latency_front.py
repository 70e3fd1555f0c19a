"""Find the smallest channel capacities for each latency and period: a Pareto front of size, period
and latency.

The source is paced: it starts an iteration every λ, the pace. The latency is the smallest of any
schedule with that period, from the start of the source's first firing of an iteration to the end
of the sink's last (`csdf.timing.latency`), and the distance is that of the graph without bounds on
the sized channels.

**A bound on the latency is a channel.** Let an actor wait for the sink's last firing of an
iteration, take the time e, and then allow the source to start the n-th iteration after it. This
actor keeps the latency to n λ − e. So capacities allow a latency of L at pace λ if they allow the
period λ together with this actor, and the search for capacities of a period
(`csdf.buffers.capacities`) finds the smallest. Latencies are sums of execution times minus
multiples of λ, so two of them differ by at least one unit. The first point has the smallest
capacities for λ. Each further point has the smallest that give a shorter latency than the point
before, until the latency is that without bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from csdf.buffers.capacities import EFFORT, CapacityProgress, CapacitySearch, Smallest, Unit
from csdf.buffers.storage import unbounded, with_capacities
from csdf.errors import CsdfError
from csdf.model.consistency import repetition_vector, unrolled
from csdf.model.graph import Actor, Channel, Graph
from csdf.model.lowered import common_denominator
from csdf.timing.expansion import expand
from csdf.timing.latency import iterations_apart
from csdf.timing.throughput import throughput

Progress = Callable[[CapacityProgress], None]


@dataclass(frozen=True, slots=True)
class LatencyPoint:
    """Capacities by channel and their total size, and the `latency` that they allow at a `pace`."""

    capacities: Mapping[str, int]
    size: int
    pace: Fraction
    latency: Fraction

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        return {
            "size": self.size,
            "period": self.pace,
            "latency": self.latency,
            "capacities": self.capacities,
        }


@dataclass(frozen=True, slots=True)
class LatencyFront:
    """Points of which none is dominated by another in size, pace and latency.

    The `paces` are the periods that were asked for. If the front is not `complete`, the effort did
    not suffice: each point allows its pace and latency, but may not be the smallest that does, and
    points may be missing.
    """

    points: tuple[LatencyPoint, ...]
    paces: tuple[Fraction, ...]
    complete: bool

    def as_json(self) -> dict[str, object]:
        """Return what the command `csdf` writes; the keys are part of its interface."""
        return {
            "periods": self.paces,
            "complete": self.complete,
            "points": [point.as_json() for point in self.points],
        }


def latency_front(
    graph: Graph,
    source: str,
    sink: str,
    period: Fraction | None = None,
    channels: Sequence[str] | None = None,
    unit: Unit = "tokens",
    effort: int = EFFORT,
    progress: Progress | None = None,
) -> LatencyFront:
    """Return smallest capacities of `channels` for each latency from `source` to `sink`.

    The source is paced by `period`, or (None) by each period of the front of size and period in
    turn. The other arguments are as in `CapacitySearch`.

    Raises as `CapacitySearch` and `csdf.timing.latency.latency` do, `OvertakingError` included.

    >>> from csdf import Actor, Channel
    >>> times = {"a": 1, "b": 4, "c": 1}
    >>> actors = tuple(Actor(name, (Fraction(time),), 1) for name, time in times.items())
    >>> ends = ("x", "a", "b"), ("y", "b", "c")
    >>> arcs = tuple(Channel(name, s, t, (1,), (1,)) for name, s, t in ends)
    >>> found = latency_front(Graph("g", actors, arcs), "a", "c")
    >>> [(point.size, str(point.pace), str(point.latency)) for point in found.points]
    [(2, '5', '6'), (4, '4', '6')]
    """
    names = unbounded(graph) if channels is None else list(dict.fromkeys(channels))
    search = CapacitySearch(graph, names, unit, effort, progress)
    if period is None:
        front = search.front()
        paces, complete = tuple(point.period for point in front.points), front.complete
        paces = paces if complete else (*paces, front.goal)
    else:
        paces, complete = (period,), True
    if 0 in paces:
        raise CsdfError(
            "nothing bounds the throughput, so there is no shortest period; name a period"
        )
    points: list[LatencyPoint] = []
    for pace in paces:
        at_pace = _Paced(graph, source, sink, names, pace)
        found, proved = at_pace.front(
            lambda bounded: CapacitySearch(bounded, names, unit, effort, progress)
        )
        points += found
        complete = complete and proved
    kept = [one for one in points if not any(_dominates(other, one) for other in points)]
    kept.sort(key=lambda point: (point.size, -point.pace, -point.latency))
    return LatencyFront(tuple(kept), paces, complete)


def _dominates(one: LatencyPoint, other: LatencyPoint) -> bool:
    no_worse = one.size <= other.size and one.pace <= other.pace and one.latency <= other.latency
    better = one.size < other.size or one.pace < other.pace or one.latency < other.latency
    return no_worse and better


class _Paced:
    """A graph whose source is paced, and of which the channels `names` are sized."""

    def __init__(
        self, graph: Graph, source: str, sink: str, names: Sequence[str], pace: Fraction
    ) -> None:
        self._source, self._sink, self._pace = source, sink, pace
        for name in (source, sink):
            if name not in graph.actor:
                known = ", ".join(map(repr, list(graph.actor)[:8]))
                raise CsdfError(f"{name!r} is not an actor of the graph; its actors are {known}")
        repetitions = repetition_vector(graph)
        # Source and sink have one cycle of phases per iteration.
        whole = unrolled(graph, {name: repetitions[name] for name in (source, sink)})
        self._graph = with_capacities(whole, dict.fromkeys(names))
        self._shortest = throughput(self._graph).period
        if pace < self._shortest:
            raise CsdfError(
                f"no capacities reach a period of {pace}; with unbounded channels it is "
                f"{self._shortest}"
            )
        self._distance = self._apart()
        times = common_denominator([actor.execution_times for actor in graph.actors])
        self._step = Fraction(1, math.lcm(times, pace.denominator))
        self._least = self.latency({})

    def _apart(self) -> int:
        events = expand(self._graph, shortest=self._shortest)
        last = events.firings(self._sink)[-1]
        found = iterations_apart(events.events, events.firings(self._source)[0], last)
        if found is None:
            raise CsdfError(
                f"no path leads from {self._source!r} to {self._sink!r}, so there is no latency"
            )
        return found

    def latency(self, capacities: Mapping[str, int]) -> Fraction:
        """Return the smallest latency of any schedule at the pace."""
        bounded = with_capacities(self._graph, dict(capacities))
        found = expand(bounded, self._pace)
        first, last = found.firings(self._source)[0], found.firings(self._sink)[-1]
        slack = Fraction(0) if first == last else found.least_float(first, last)
        assert slack is not None  # noqa: S101 (a path leads from the source to the sink)
        walk = found.start(last) - found.start(first) - slack + self._distance * self._pace
        return walk + bounded.actor[self._sink].execution_times[-1]

    def front(self, search: Callable[[Graph], CapacitySearch]) -> tuple[list[LatencyPoint], bool]:
        """Return the points, and whether they are proved to be all."""
        points: list[LatencyPoint] = []
        found = search(self._graph).smallest(self._pace)
        while True:
            point = self._point(found)
            if points and points[-1].size == point.size:
                points.pop()
            points.append(point)
            if not found.exact or point.latency <= self._least:
                return points, found.exact
            found = search(self._bounded(point.latency - self._step)).smallest(self._pace)

    def _point(self, found: Smallest) -> LatencyPoint:
        capacities = found.point.capacities
        return LatencyPoint(capacities, found.point.size, self._pace, self.latency(capacities))

    def _bounded(self, latency: Fraction) -> Graph:
        """Return the graph that reaches the pace only if it has at most this latency."""
        turns = max(0, math.floor(latency / self._pace) + 1 - self._distance)
        name = "latency"
        while name in self._graph.actor or name in self._graph.channel:
            name += "'"
        pause = (turns + self._distance) * self._pace - latency
        phases = {end: self._graph.actor[end].phases for end in (self._source, self._sink)}
        last, first = (0,) * (phases[self._sink] - 1), (0,) * (phases[self._source] - 1)
        return replace(
            self._graph,
            actors=(*self._graph.actors, Actor(name, (pause,))),
            channels=(
                *self._graph.channels,
                Channel(name, self._sink, name, (*last, 1), (1,)),
                Channel(f"{name}'", name, self._source, (1,), (1, *first), turns),
            ),
        )
