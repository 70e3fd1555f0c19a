"""The smallest capacities that are live, that reach a period, and all trades in between.

Each is the smallest distribution that meets a goal (`csdf.ascent`): to live, to reach a period, or
to beat one. All trades are found by going up: each point's period is the goal to beat for the next.

Where the search ends before it is through, what it has come to is a bound from below that is
proved, and a distribution that meets the goal one from above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.ascent import Ascent
from csdf.conflicts import Conflict, OutOfEffort, PeriodGoal
from csdf.errors import CsdfError
from csdf.graph import Graph
from csdf.storage import Storage

Unit = Literal["tokens", "bytes"]

EFFORT = 60_000
"""What a search may cost by default: about milliseconds, but counted, not measured."""


_AS_FOUND = 3
"""Conflicts of a step of the front that are taken as they are found, since the next is near."""


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
class CapacityProgress:
    """Of a search: what it looks for, the size that is proved to be needed, and one that will do.

    `spent` is the share of the effort; the search may end long before all is.
    """

    goal: PeriodGoal
    at_least: int
    enough: int | None
    spent: float


class Search:
    """Searches for one graph; what one learns, the next knows."""

    def __init__(
        self,
        graph: Graph,
        channels: Sequence[str] | None = None,
        unit: Unit = "tokens",
        effort: int = EFFORT,
        progress: Callable[[CapacityProgress], None] | None = None,
    ) -> None:
        """`channels` are those to be sized; see `csdf.storage.Storage`, also for what is raised.

        Each search may cost `effort`, and reports its `progress`.
        """
        self._storage = Storage(graph, channels)
        places = range(len(self._storage.names))
        cost = [1 if unit == "tokens" else self._storage.token_bytes(p) for p in places]
        # What the least capacities cost, and a step more in each.
        self._base = sum(n * one for n, one in zip(self._storage.least, cost, strict=True))
        self._price = [n * one for n, one in zip(self._storage.grain, cost, strict=True)]
        self._effort, self._report = effort, progress
        self._conflicts: list[Conflict] = []

    @property
    def overtakes(self) -> bool:
        """Whether firings may overtake each other, so that far fewer graphs can be solved."""
        return self._storage.overtakes

    def best_period(self) -> Fraction:
        """The period without any bound on the channels that are sized.

        Raises `CsdfError` if no capacities reach it, because nothing else bounds the throughput.
        """
        times = (time for actor in self._storage.graph.actors for time in actor.execution_times)
        if self._storage.shortest == 0 and any(times) and self._storage.names:
            raise CsdfError(
                "without capacities nothing bounds the throughput, so more room always helps; "
                "name a period to reach"
            )
        return self._storage.shortest

    def smallest_live(self) -> Smallest:
        """The smallest distribution that is live."""
        return self._smallest(PeriodGoal(None))

    def smallest(self, period: Fraction | None = None) -> Smallest:
        """The smallest distribution with this period or a shorter one (None: the best).

        Raises `CsdfError` if no capacities reach it.
        """
        return self._smallest(PeriodGoal(self._wanted(period)))

    def front(self, period: Fraction | None = None) -> Front:
        """All points up to the one that has `period` (None: the best), as far as `effort` goes.

        Raises `CsdfError` if no capacities reach it.
        """
        wanted = self._wanted(period)
        points: list[Point] = []
        ascent = self._ascent(PeriodGoal(None))
        try:
            while not points or points[-1].period > wanted:
                point = self._point(ascent.smallest(_AS_FOUND))
                # Of the same size, but faster.
                if points and points[-1].size == point.size:
                    points.pop()
                points.append(point)
                ascent.goal = PeriodGoal(point.period, strict=True)
        except OutOfEffort:
            further = self._base + ascent.at_least
            # A point as large as what is left to look at might still be beaten at its own size.
            if points and points[-1].size >= further:
                points.pop()
            return Front(tuple(points), wanted, self._smallest(PeriodGoal(wanted)), further)
        return Front(tuple(points), wanted)

    def _wanted(self, period: Fraction | None) -> Fraction:
        if period is None:
            return self.best_period()
        if period < self._storage.shortest:
            raise CsdfError(
                f"no capacities give a period of {period}; "
                f"without any it is {self._storage.shortest}"
            )
        return self.best_period() if period == 0 else period

    def _smallest(self, goal: PeriodGoal) -> Smallest:
        ascent = self._ascent(goal)
        try:
            point = self._point(ascent.smallest())
        except OutOfEffort:
            point = self._point(ascent.enough())
        return Smallest(point, min(self._base + ascent.at_least, point.size))

    def _ascent(self, goal: PeriodGoal) -> Ascent:
        return Ascent(
            self._storage, self._price, goal, self._conflicts, 1000 * self._effort, self._tell
        )

    def _tell(self, ascent: Ascent) -> None:
        if self._report is not None:
            enough = None if ascent.best is None else self._base + ascent.cost(ascent.best)
            at_least = self._base + ascent.at_least
            self._report(CapacityProgress(ascent.goal, at_least, enough, ascent.spent))

    def _point(self, taken: Sequence[int]) -> Point:
        capacities = self._storage.capacities(taken)
        size = sum(price * steps for price, steps in zip(self._price, taken, strict=True))
        named = dict(zip(self._storage.names, capacities, strict=True))
        return Point(named, self._base + size, self._storage.period(taken))
