"""Smallest channel capacities: the Pareto front of total size against period.

Each point is the smallest storage distribution that meets a goal
(`csdf.buffers.hitting_set_search`): to be live, to reach a period, or to beat one. The front is
found from below: the period of each point is the one that the next must beat.

Where the effort is spent before the search is over, the answer is a proved lower bound and a
distribution that meets the goal, which is an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.buffers.conflicts import Conflict, OutOfEffort, PeriodGoal
from csdf.buffers.hitting_set_search import HittingSetSearch
from csdf.buffers.storage import Storage
from csdf.errors import CsdfError
from csdf.model.graph import Graph

Unit = Literal["tokens", "bytes"]

EFFORT = 60_000
"""What a search may cost by default: about milliseconds, but counted, not measured."""

_AS_FOUND = 3
"""Conflicts per point of the front that are not strengthened, since the next point is near."""


@dataclass(frozen=True, slots=True)
class Point:
    """A distribution: channel → capacity in tokens, its total size, and the exact period."""

    capacities: Mapping[str, int]
    size: int
    period: Fraction


@dataclass(frozen=True, slots=True)
class Smallest:
    """A distribution that meets a goal, and a proved lower bound on the size of all that do."""

    point: Point
    at_least: int

    @property
    def exact(self) -> bool:
        """Whether the distribution is proved to be a smallest one."""
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
    """How far a search is: its goal, and the proved bounds on the size of a smallest distribution.

    `enough` is None while no distribution is known to meet the goal. `spent` is the share of the
    effort that is spent; the search may end long before that is 1.
    """

    goal: PeriodGoal
    at_least: int
    enough: int | None
    spent: float


class Search:
    """Searches for smallest distributions of one graph; each uses the conflicts of those before."""

    def __init__(
        self,
        graph: Graph,
        channels: Sequence[str] | None = None,
        unit: Unit = "tokens",
        effort: int = EFFORT,
        progress: Callable[[CapacityProgress], None] | None = None,
    ) -> None:
        """`channels` are those to be sized; raises as `csdf.buffers.storage.Storage` does.

        Each search may cost `effort`, and reports its `progress`.
        """
        self._storage = Storage(graph, channels)
        places = range(len(self._storage.names))
        cost = [1 if unit == "tokens" else self._storage.token_bytes(p) for p in places]
        # The cost of the least capacities, and of a step more in each channel.
        self._base = sum(n * one for n, one in zip(self._storage.least, cost, strict=True))
        self._price = [n * one for n, one in zip(self._storage.grain, cost, strict=True)]
        self._effort, self._report = effort, progress
        self._conflicts: list[Conflict] = []

    @property
    def overtakes(self) -> bool:
        """Whether firings may overtake each other, so that far fewer graphs can be solved."""
        return self._storage.overtakes

    def best_period(self) -> Fraction:
        """Return the period without any bound on the sized channels.

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
        """Return the smallest distribution that is live."""
        return self._smallest(PeriodGoal(None))

    def smallest(self, period: Fraction | None = None) -> Smallest:
        """Return the smallest distribution with this period or a shorter one (None: the best).

        Raises `CsdfError` if no capacities reach it.
        """
        return self._smallest(PeriodGoal(self._wanted(period)))

    def front(self, period: Fraction | None = None) -> Front:
        """Return all points up to the one that has `period` (None: the best).

        The front is not complete if the effort is spent before. Raises `CsdfError` if no capacities
        reach that period.
        """
        wanted = self._wanted(period)
        points: list[Point] = []
        search = self._search_for(PeriodGoal(None))
        try:
            while not points or points[-1].period > wanted:
                point = self._point(search.smallest(_AS_FOUND))
                # Of the same size, but faster.
                if points and points[-1].size == point.size:
                    points.pop()
                points.append(point)
                search.goal = PeriodGoal(point.period, strict=True)
        except OutOfEffort:
            further = self._base + search.at_least
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
        search = self._search_for(goal)
        try:
            point = self._point(search.smallest())
        except OutOfEffort:
            point = self._point(search.enough())
        return Smallest(point, min(self._base + search.at_least, point.size))

    def _search_for(self, goal: PeriodGoal) -> HittingSetSearch:
        return HittingSetSearch(
            self._storage,
            self._price,
            goal,
            self._conflicts,
            1000 * self._effort,
            self._report_progress,
        )

    def _report_progress(self, search: HittingSetSearch) -> None:
        if self._report is not None:
            enough = None if search.best is None else self._base + search.cost(search.best)
            at_least = self._base + search.at_least
            self._report(CapacityProgress(search.goal, at_least, enough, search.spent))

    def _point(self, taken: Sequence[int]) -> Point:
        capacities = self._storage.capacities(taken)
        size = sum(price * steps for price, steps in zip(self._price, taken, strict=True))
        named = dict(zip(self._storage.names, capacities, strict=True))
        return Point(named, self._base + size, self._storage.period(taken))
