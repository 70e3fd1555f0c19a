"""Find smallest channel capacities: the Pareto front of total size against period.

Each point is the smallest storage distribution that meets a goal: to be live, to reach a period, or
to beat one. The front is found from below: the period of each point is the one that the next must
beat. If the effort is spent before the search is over, the answer is a proved lower bound and a
distribution that meets the goal, which is an upper bound.

The search for one goal (`HittingSetSearch`) is an implicit hitting set problem. The search knows
conflicts and cycle bounds of the goal (`csdf.buffers.conflicts`). The cheapest distribution that
satisfies them (`csdf.buffers.hitting_set`) costs at most as much as the cheapest that meets the
goal. Its analysis (`csdf.buffers.storage`) shows that it meets the goal, and then it is a smallest
one, or yields a new conflict, which is strengthened as far as it holds. The channels of the
conflict then get sufficient room, so that the next analysis yields a conflict of other channels,
until the goal is met. That distribution, reduced as far as the goal allows, is the answer if the
effort is spent before a smallest one is proved.

Distributions are tuples of steps above the least capacities, one entry for each sized channel
(`csdf.buffers.storage.Storage.capacities`); the index of a channel in them is its *place*.

Source: E. Moreno-Centeno, R. M. Karp, "The implicit hitting set approach to solve combinatorial
optimization problems with an application to multigenome alignment", Operations Research, 2013.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.buffers.conflicts import Conflict, OutOfEffort, PeriodGoal, strengthened
from csdf.buffers.hitting_set import HittingSet
from csdf.buffers.storage import Storage
from csdf.errors import CsdfError
from csdf.model.graph import Graph

_HALVINGS = 40
"""Largest number of times that `_reduced` halves all capacities before it treats each alone."""

Unit = Literal["tokens", "bytes"]

EFFORT = 60_000
"""Default effort of a search: about milliseconds, but counted and not measured."""

_AS_FOUND = 3
"""Conflicts per point of the front that are not strengthened, since its goal is near."""


class HittingSetSearch:
    """A search for the smallest distribution that meets `goal`.

    `at_least` is a proved lower bound on its cost, `best` the cheapest distribution known to meet
    the goal. Both leave out the cost of the least capacities. The caller may set a higher `goal`.
    """

    def __init__(
        self,
        storage: Storage,
        price: Sequence[int],
        goal: PeriodGoal,
        conflicts: list[Conflict],
        effort: int,
        report: Callable[[HittingSetSearch], None],
    ) -> None:
        """`price` is the cost of a step, by place; `effort` is in the unit of `Storage.work`.

        `conflicts` may be of any goal; the search adds those that it finds.
        """
        self.goal = goal
        self.at_least = 0
        self.best: tuple[int, ...] | None = None
        self._storage, self._price, self._conflicts = storage, price, conflicts
        self._effort, self._report = effort, report
        self._started = storage.work
        self._hitting_set = HittingSet(price)
        for conflict in conflicts:
            if goal.misses(conflict.period):
                self._hitting_set.add(conflict)

    @property
    def spent(self) -> float:
        """The share of the effort that is spent."""
        work = self._storage.work - self._started + self._hitting_set.work
        return work / self._effort if self._effort else 1

    def cost(self, taken: Sequence[int]) -> int:
        """Return the cost of a distribution that is given in steps above the least."""
        return sum(price * steps for price, steps in zip(self._price, taken, strict=True))

    def smallest(self, as_found: int = 0) -> tuple[int, ...]:
        """Return a smallest distribution that meets the goal. Raises `OutOfEffort`.

        The first `as_found` conflicts are not strengthened, which is faster if the goal is near.
        """
        self.best = None
        rounds = -as_found
        while True:
            taken, self.at_least = self._hitting_set.smallest()
            if rounds >= 0:
                taken = self._within_bounds(taken)
            if (found := self._proved()) is not None:
                return found
            self._report(self)
            conflict = self._conflict(taken)
            if conflict is None and self.cost(taken) == self.at_least:
                return taken
            if conflict is None:
                self._keep(taken)
                raise OutOfEffort  # nothing better can be proved
            rounds += 1
            if rounds <= 0:
                self._learn(conflict)
                continue
            relaxed = taken
            while conflict is not None:
                relaxed = self._relaxed(relaxed, self._learn(self._strengthened(conflict, relaxed)))
                conflict = self._conflict(relaxed)
            if rounds & (rounds - 1) == 0:
                self._keep(self._reduced(relaxed, taken))

    def sufficient(self) -> tuple[int, ...]:
        """Return a distribution that meets the goal, after `smallest` has raised `OutOfEffort`."""
        if self.best is None:
            self._started = self._storage.work + self._hitting_set.work
            relaxed = tuple(0 for _ in self._price)
            while (conflict := self._storage.conflict(relaxed, self.goal)) is not None:
                relaxed = self._relaxed(relaxed, conflict)
            self._keep(self._reduced(relaxed, [0] * len(relaxed)))
        assert self.best is not None  # noqa: S101 (one has been kept)
        return self.best

    def _proved(self) -> tuple[int, ...] | None:
        """Return `best` if it is proved to be a smallest one, else None."""
        return (
            self.best if self.best is not None and self.cost(self.best) <= self.at_least else None
        )

    def _keep(self, taken: tuple[int, ...]) -> None:
        self.best = taken if self.best is None else min(self.best, taken, key=self.cost)

    def _within_bounds(self, taken: tuple[int, ...]) -> tuple[int, ...]:
        """Add violated cycle bounds until a cheapest distribution violates none, and return it."""
        while self.spent < 1:
            relaxed, violated = taken, 0
            while (bound := self._storage.violated_bound(relaxed, self.goal)) is not None:
                self._hitting_set.add_bound(bound)
                relaxed = self._with_sufficient(relaxed, {place for place, _ in bound.weights})
                violated += 1
            if not violated:
                break
            taken, self.at_least = self._hitting_set.smallest()
        return taken

    def _conflict(self, taken: Sequence[int]) -> Conflict | None:
        """Return why these steps miss the goal, None if they meet it. Raises `OutOfEffort`."""
        if self.spent >= 1:
            raise OutOfEffort
        return self._storage.conflict(taken, self.goal)

    def _strengthened(self, conflict: Conflict, taken: Sequence[int]) -> Conflict:
        sufficient = self._storage.sufficient(self.goal)
        return strengthened(conflict, taken, self._conflict, sufficient, self._price)

    def _learn(self, conflict: Conflict) -> Conflict:
        self._conflicts.append(conflict)
        self._hitting_set.add(conflict)
        return conflict

    def _relaxed(self, taken: tuple[int, ...], conflict: Conflict) -> tuple[int, ...]:
        """Give the channels of the conflict sufficient room for the goal."""
        return self._with_sufficient(taken, {p for need in conflict.needed for p in need.places})

    def _with_sufficient(self, taken: tuple[int, ...], places: set[int]) -> tuple[int, ...]:
        sufficient = self._storage.sufficient(self.goal)
        # Where firings may overtake each other, no room is known to be sufficient.
        more = [
            most if steps < most else 2 * steps + 1
            for steps, most in zip(taken, sufficient, strict=True)
        ]
        return tuple(more[p] if p in places else steps for p, steps in enumerate(taken))

    def _reduced(self, enough: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
        """Reduce steps that meet the goal as far as the effort allows, but not below `least`.

        First all channels are reduced by halves, then each by itself, the most expensive first.
        """
        taken = list(enough)
        with contextlib.suppress(OutOfEffort):
            for _ in range(_HALVINGS):
                half = [low + (high - low) // 2 for low, high in zip(least, taken, strict=True)]
                if half == taken or self._conflict(half) is not None:
                    break
                taken = half
            for place in sorted(range(len(taken)), key=lambda p: (-self._price[p], p)):
                low, high = least[place], taken[place]
                while low < high:
                    middle = (low + high) // 2
                    if self._conflict([*taken[:place], middle, *taken[place + 1 :]]) is None:
                        high = taken[place] = middle
                    else:
                        low = middle + 1
        return tuple(taken)


@dataclass(frozen=True, slots=True)
class Point:
    """A distribution: capacities in tokens by channel, their total size, and the exact period."""

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

    `points` are exact: no smaller distribution has their period, and none of their size a shorter
    one. If the front is `complete`, the last has the period `goal`. If not, there is no further
    point below the size `next_at_least`, and `rest` bounds the size of the point with that period.
    """

    points: tuple[Point, ...]
    goal: Fraction
    rest: Smallest | None = None
    next_at_least: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the front has no further points up to the goal."""
        return self.rest is None


@dataclass(frozen=True, slots=True)
class CapacityProgress:
    """The progress of a search: its goal, and proved bounds on the size of a smallest distribution.

    `enough` is None while no distribution is known to meet the goal. `spent` is the share of the
    effort that is spent; the search may end long before that is 1.
    """

    goal: PeriodGoal
    at_least: int
    enough: int | None
    spent: float


class CapacitySearch:
    """Searches for smallest distributions of one graph; each reuses the conflicts of earlier ones.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("p", (Fraction(2),), 1), Actor("c", (Fraction(1), Fraction(3)), 1)
    >>> graph = Graph("pair", actors, (Channel("tokens", "p", "c", (2,), (1, 1)),))
    >>> search = CapacitySearch(graph)
    >>> search.smallest_live().point.capacities
    {'tokens': 2}
    >>> search.smallest(Fraction(4)).point.capacities
    {'tokens': 3}
    >>> [(point.size, str(point.period)) for point in search.front().points]
    [(2, '6'), (3, '4')]
    """

    def __init__(
        self,
        graph: Graph,
        channels: Sequence[str] | None = None,
        unit: Unit = "tokens",
        effort: int = EFFORT,
        progress: Callable[[CapacityProgress], None] | None = None,
    ) -> None:
        """`channels` are the names of those to size; raises as `csdf.buffers.storage.Storage` does.

        Each search may cost `effort`, and calls `progress` from time to time.
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
                "only capacities bound the throughput, so more room always helps; name a period "
                "to reach"
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
                # It replaces a point of the same size, which is slower.
                if points and points[-1].size == point.size:
                    points.pop()
                points.append(point)
                search.goal = PeriodGoal(point.period, strict=True)
        except OutOfEffort:
            further = self._base + search.at_least
            # A point of that size might still be beaten by one of the same size.
            if points and points[-1].size >= further:
                points.pop()
            return Front(tuple(points), wanted, self._smallest(PeriodGoal(wanted)), further)
        return Front(tuple(points), wanted)

    def _wanted(self, period: Fraction | None) -> Fraction:
        if period is None:
            return self.best_period()
        if period < self._storage.shortest:
            raise CsdfError(
                f"no capacities reach a period of {period}; with unbounded channels it is "
                f"{self._storage.shortest}"
            )
        return self.best_period() if period == 0 else period

    def _smallest(self, goal: PeriodGoal) -> Smallest:
        search = self._search_for(goal)
        try:
            point = self._point(search.smallest())
        except OutOfEffort:
            point = self._point(search.sufficient())
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
