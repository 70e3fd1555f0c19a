"""The smallest capacities that are live, that reach a period, and all trades in between.

A best-first search over distributions of capacities, in the order of their size, from the smallest
that each channel needs by itself. A distribution that some conflict (`csdf.storage`) speaks of need
not be looked at: its successors raise one channel of the conflict each, to what that asks for. One
that no conflict speaks of is analysed, which gives a new conflict or a solution. A distribution's
size is estimated by what disjoint conflicts will still cost, which is never too much, so the first
solution found is a smallest one; no distribution is passed over, so the front is complete.

Where the search ends before it is through, its next estimate is a bound from below that is proved,
and a distribution found by going up along conflicts, and down again channel by channel, one from
above.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.errors import CsdfError
from csdf.graph import Graph
from csdf.storage import Conflict, Storage
from csdf.throughput import throughput

Unit = Literal["tokens", "bytes"]

EFFORT = 8_000_000
"""What a search may cost by default: conflicts compared with, and `_ANALYSIS` for an analysis."""

_ANALYSIS = 5000
_PER_FIRING = 10
_RECURRING = 10


@dataclass(frozen=True, slots=True)
class Point:
    """A distribution: channel → capacity in tokens, its total size, and the exact period."""

    capacities: Mapping[str, int]
    size: int
    period: Fraction


@dataclass(frozen=True, slots=True)
class Smallest:
    """A distribution that does what is asked, and a proved bound: none below `at_least` does."""

    point: Point
    at_least: int

    @property
    def exact(self) -> bool:
        """Whether it is proved to be a smallest one."""
        return self.point.size == self.at_least


@dataclass(frozen=True, slots=True)
class Front:
    """The Pareto front of size and period, from the smallest live distribution on.

    `points` are exact: nothing smaller has their period, nothing of their size a shorter one. The
    last has the `goal`, if the front is `complete`; if not, there is no further point below
    `next_at_least`, and `rest` bounds the size of the one that has the goal.
    """

    points: tuple[Point, ...]
    goal: Fraction
    rest: Smallest | None = None
    next_at_least: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the points are all there are."""
        return self.rest is None


@dataclass(frozen=True, slots=True)
class _Goal:
    """A period to reach (None: just to live), or, if `strict`, to beat."""

    period: Fraction | None
    strict: bool = False

    def misses(self, period: Fraction | None) -> bool:
        """Whether `period` (None: deadlock) is not good enough."""
        if period is None or self.period is None:
            return period is None
        return period >= self.period if self.strict else period > self.period


class Search:
    """Searches for one graph; what one learns, the next knows."""

    def __init__(
        self,
        graph: Graph,
        channels: Sequence[str] | None = None,
        unit: Unit = "tokens",
        effort: int = EFFORT,
    ) -> None:
        """`channels` are those to be sized; see `csdf.storage.Storage`, also for what is raised."""
        self._storage = Storage(graph, channels)
        places = range(len(self._storage.names))
        self._cost = [1 if unit == "tokens" else self._storage.token_bytes(p) for p in places]
        self._effort = effort
        self._price = _ANALYSIS + _PER_FIRING * self._storage.firings
        self._conflicts: list[Conflict] = []
        self._known: set[Conflict] = set()
        self._shortest = throughput(self._storage.graph).period
        self._work = self._at_least = 0

    @property
    def overtakes(self) -> bool:
        """Whether firings may overtake each other, so that far fewer graphs can be solved."""
        return self._storage.overtakes

    def best_period(self) -> Fraction:
        """The period without any bound on the channels that are sized.

        Raises `CsdfError` if no capacities reach it, because nothing else bounds the throughput.
        """
        times = (time for actor in self._storage.graph.actors for time in actor.execution_times)
        if self._shortest == 0 and any(times) and self._storage.names:
            raise CsdfError(
                "without capacities nothing bounds the throughput, so more room always helps; "
                "name a period to reach"
            )
        return self._shortest

    def smallest_live(self) -> Smallest:
        """The smallest distribution that is live."""
        return self._smallest(_Goal(None))

    def smallest(self, period: Fraction | None = None) -> Smallest:
        """The smallest distribution with this period or a shorter one (None: the best).

        Raises `CsdfError` if no capacities reach it.
        """
        return self._smallest(_Goal(self._wanted(period)))

    def front(self, period: Fraction | None = None) -> Front:
        """All points up to the one that has `period` (None: the best), as far as `effort` goes.

        Raises `CsdfError` if no capacities reach it.
        """
        wanted = self._wanted(period)
        points: list[Point] = []
        for point in self._ascend(_Goal(None), wanted):
            if points and points[-1].size == point.size:
                points.pop()
            points.append(point)
        if points and points[-1].period <= wanted:
            return Front(tuple(points), wanted)
        # A point as large as what is left to look at might still be beaten at its own size.
        if points and points[-1].size >= self._at_least:
            points.pop()
        further = self._at_least
        return Front(tuple(points), wanted, self._smallest(_Goal(wanted)), further)

    def _wanted(self, period: Fraction | None) -> Fraction:
        if period is None:
            return self.best_period()
        if period < self._shortest:
            raise CsdfError(
                f"no capacities give a period of {period}; without any it is {self._shortest}"
            )
        return self.best_period() if period == 0 else period

    def _smallest(self, goal: _Goal) -> Smallest:
        if goal.period is not None and not self._storage.overtakes:
            self._probe(goal)
        for point in self._ascend(goal, goal.period):
            return Smallest(point, point.size)
        return self._bounds(goal)

    def _probe(self, goal: _Goal) -> None:
        """Learns what each channel needs by itself, with ample room in all others."""
        self._work = 0
        for place, least in enumerate(self._storage.least):
            capacities = list(self._storage.ample)
            capacities[place] = least
            while self._work < self._effort:
                conflict = self._against(tuple(capacities), goal, self._active(goal))
                more = dict(conflict.needed).get(place) if conflict is not None else None
                if more is None:
                    break
                capacities[place] = more

    def _bounds(self, goal: _Goal) -> Smallest:
        """After a search that gave up."""
        above = self._point(self._descend(goal))
        return Smallest(above, min(self._at_least, above.size))

    def _ascend(self, goal: _Goal, last: Fraction | None) -> Iterator[Point]:
        """Distributions that meet ever higher goals, smallest first, until one has period `last`.

        Ends before that if it gives up; `_at_least` then bounds what it has not found.
        """
        start = self._storage.least
        queue = [(self._size(start), start)]
        seen = {start}
        self._work = 0
        while queue and self._work < self._effort:
            size, capacities = heapq.heappop(queue)
            active = self._active(goal)
            self._work += 1 + len(active)
            estimate = self._size(capacities) + self._still(capacities, active)
            if estimate > size:
                heapq.heappush(queue, (estimate, capacities))
                continue
            conflict = self._against(capacities, goal, active)
            if conflict is None:
                point = self._point(capacities)
                yield point
                if last is not None and point.period <= last:
                    return
                goal = _Goal(point.period, strict=True)
                heapq.heappush(queue, (size, capacities))
                continue
            for place, needed in conflict.needed:
                raised = (*capacities[:place], needed, *capacities[place + 1 :])
                if raised not in seen:
                    seen.add(raised)
                    heapq.heappush(queue, (max(size, self._size(raised)), raised))
        self._at_least = queue[0][0] if queue else self._at_least

    def _descend(self, goal: _Goal) -> tuple[int, ...]:
        """Some distribution that meets `goal`; with effort left, no channel could be smaller."""
        least = self._storage.least
        capacities = list(least)
        while (conflict := self._against(tuple(capacities), goal, self._active(goal))) is not None:
            for place, needed in conflict.needed:
                # Ever further above the least, so that few analyses are needed.
                capacities[place] = max(needed, 2 * capacities[place] - least[place])
        self._work = 0
        for place in sorted(range(len(capacities)), key=lambda p: (-self._cost[p], p)):
            low, high = least[place], capacities[place]
            while low < high and self._work < self._effort:
                capacities[place] = middle = (low + high) // 2
                if self._against(tuple(capacities), goal, self._active(goal)) is None:
                    high = middle
                else:
                    low = middle + 1
            capacities[place] = high
        return tuple(capacities)

    def _against(
        self, capacities: tuple[int, ...], goal: _Goal, active: Sequence[Conflict]
    ) -> Conflict | None:
        """A conflict that shows that `capacities` miss the goal; None if they meet it."""
        known = [conflict for conflict in active if conflict.holds(capacities)]
        if known:
            return min(known, key=lambda conflict: len(conflict.needed))
        self._work += self._price
        conflict = self._storage.deadlock(capacities)
        if conflict is None and goal.period is not None:
            # Following an execution until it recurs costs many times as much as a cycle ratio.
            self._work += _RECURRING * self._price if self._storage.overtakes else 0
            conflict = self._storage.conflict(capacities)
        if conflict is not None and conflict not in self._known:
            self._known.add(conflict)
            self._conflicts.append(conflict)
        return conflict if conflict is not None and goal.misses(conflict.period) else None

    def _active(self, goal: _Goal) -> list[Conflict]:
        return [conflict for conflict in self._conflicts if goal.misses(conflict.period)]

    def _still(self, capacities: Sequence[int], conflicts: Sequence[Conflict]) -> int:
        """What disjoint ones of `conflicts` will cost beyond `capacities`."""
        prices = [
            (min((n - capacities[p]) * self._cost[p] for p, n in conflict.needed), conflict)
            for conflict in conflicts
            if conflict.needed and conflict.holds(capacities)
        ]
        prices.sort(key=lambda one: -one[0])
        total = 0
        used: set[int] = set()
        for price, conflict in prices:
            if all(place not in used for place, _ in conflict.needed):
                used.update(place for place, _ in conflict.needed)
                total += price
        return total

    def _size(self, capacities: Sequence[int]) -> int:
        return sum(c * cost for c, cost in zip(capacities, self._cost, strict=True))

    def _point(self, capacities: tuple[int, ...]) -> Point:
        period = self._storage.conflict(capacities).period
        assert period is not None  # noqa: S101 (points are live)
        named = dict(zip(self._storage.names, capacities, strict=True))
        return Point(named, self._size(capacities), period)
