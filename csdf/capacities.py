"""The smallest capacities that are live, that reach a period, and all trades in between.

What is known of a goal are conflicts (`csdf.conflicts`): distributions that miss it, and why. The
smallest distribution of which none of them speaks (`csdf.cover`) is at most as large as one that
meets the goal. It is analysed (`csdf.storage`): if it meets the goal, it is a smallest one;
otherwise there is a new conflict. The channels of the conflict are then given ample room, and what
still misses the goal gives conflicts of other channels.

All trades are found by going up: each point's period is the goal to beat for the next.

Where the search ends before it is through, the smallest distribution that is left is a bound from
below that is proved, and one that meets the goal, and in which no channel could be smaller by
itself, one from above.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.conflicts import Conflict, Goal, OutOfEffort, raised
from csdf.cover import Cover
from csdf.errors import CsdfError
from csdf.graph import Graph
from csdf.storage import Storage

Unit = Literal["tokens", "bytes"]

EFFORT = 60_000
"""What a search may cost by default: about milliseconds, but counted, not measured."""

_HALVINGS = 40
"""How often ample capacities are halved, at most, before each channel is looked at by itself."""

_AS_FOUND = 8
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
class Progress:
    """Of a search: what it looks for, the size that is proved to be needed, and one that will do.

    `spent` is the share of the effort; the search may end long before all is.
    """

    goal: Goal
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
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        """`channels` are those to be sized; see `csdf.storage.Storage`, also for what is raised.

        Each search may cost `effort`, and reports its `progress`.
        """
        self._storage = Storage(graph, channels)
        places = range(len(self._storage.names))
        self._cost = [1 if unit == "tokens" else self._storage.token_bytes(p) for p in places]
        self._effort, self._report = effort, progress
        self._conflicts: list[Conflict] = []
        self._begin(Goal(None))

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
        return self._smallest(Goal(None))

    def smallest(self, period: Fraction | None = None) -> Smallest:
        """The smallest distribution with this period or a shorter one (None: the best).

        Raises `CsdfError` if no capacities reach it.
        """
        return self._smallest(Goal(self._wanted(period)))

    def front(self, period: Fraction | None = None) -> Front:
        """All points up to the one that has `period` (None: the best), as far as `effort` goes.

        Raises `CsdfError` if no capacities reach it.
        """
        wanted = self._wanted(period)
        points: list[Point] = []
        self._begin(Goal(None))
        try:
            while not points or points[-1].period > wanted:
                point = self._point(self._least(_AS_FOUND))
                # Of the same size, but faster.
                if points and points[-1].size == point.size:
                    points.pop()
                points.append(point)
                self._goal = Goal(point.period, strict=True)
        except OutOfEffort:
            further = self._at_least
            # A point as large as what is left to look at might still be beaten at its own size.
            if points and points[-1].size >= further:
                points.pop()
            return Front(tuple(points), wanted, self._smallest(Goal(wanted)), further)
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

    def _begin(self, goal: Goal) -> None:
        self._goal = goal
        self._cover = Cover(self._storage.least, self._storage.grain, self._cost)
        self._started = self._storage.work
        self._at_least = self._size(self._storage.least)
        self._best: tuple[int, ...] | None = None
        for conflict in self._conflicts:
            if goal.misses(conflict.period):
                self._cover.add(conflict)

    def _smallest(self, goal: Goal) -> Smallest:
        self._begin(goal)
        try:
            point = self._point(self._least(0))
        except OutOfEffort:
            if self._best is None:
                self._started = self._storage.work + self._cover.work
                self._best = self._shrunk(self._some(), self._storage.least)
            point = self._point(self._best)
        return Smallest(point, min(self._at_least, point.size))

    def _least(self, as_found: int) -> tuple[int, ...]:
        """A smallest distribution that meets the goal. Raises `OutOfEffort`.

        This many conflicts are taken as they are found.
        """
        self._best = None
        rounds = 0
        while True:
            capacities, self._at_least = self._cover.smallest()
            if rounds >= as_found:
                capacities = self._summed(capacities)
            if self._best is not None and self._size(self._best) <= self._at_least:
                return self._best
            self._tell()
            conflict = self._conflict(capacities)
            if conflict is None and self._size(capacities) == self._at_least:
                return capacities
            if conflict is None:
                self._best = min(self._best or capacities, capacities, key=self._size)
                raise OutOfEffort  # nothing better can be proved
            rounds += 1
            if rounds <= as_found:
                self._learn(conflict)
                continue
            free = capacities
            while conflict is not None:
                strong = self._raised(conflict)
                self._learn(strong)
                free = self._freed(free, strong)
                conflict = self._conflict(free)
            if (rounds - as_found) & (rounds - as_found - 1) == 0:
                shrunk = self._shrunk(free, capacities)
                self._best = min(self._best or shrunk, shrunk, key=self._size)

    def _summed(self, capacities: tuple[int, ...]) -> tuple[int, ...]:
        """The smallest distribution, once no sum is known that it misses."""
        while self._spent() < 1:
            free, missed = capacities, 0
            while (wanted := self._storage.missed_sum(free, self._goal)) is not None:
                self._cover.add_sum(wanted)
                ample, places = self._storage.ample(self._goal), dict(wanted.weights)
                free = tuple(ample[p] if p in places else c for p, c in enumerate(free))
                missed += 1
            if not missed:
                break
            capacities, self._at_least = self._cover.smallest()
        return capacities

    def _conflict(self, capacities: Sequence[int]) -> Conflict | None:
        """Why `capacities` miss the goal, if they do. Raises `OutOfEffort`."""
        if self._spent() >= 1:
            raise OutOfEffort
        return self._storage.conflict(capacities, self._goal)

    def _raised(self, conflict: Conflict) -> Conflict:
        storage = self._storage
        ample = storage.ample(self._goal)
        return raised(conflict, self._conflict, ample, storage.grain, self._cost)

    def _learn(self, conflict: Conflict) -> None:
        self._conflicts.append(conflict)
        self._cover.add(conflict)

    def _freed(self, capacities: Sequence[int], conflict: Conflict) -> tuple[int, ...]:
        """With so much room in the channels of the conflict that they matter no more."""
        ample, free = self._storage.ample(self._goal), list(capacities)
        for place, needed in conflict.needed:
            free[place] = ample[place] if free[place] < ample[place] else 2 * needed
        return tuple(free)

    def _some(self) -> tuple[int, ...]:
        """A distribution that meets the goal, whatever it takes to find one."""
        free = tuple(self._storage.least)
        while (conflict := self._storage.conflict(free, self._goal)) is not None:
            free = self._freed(free, conflict)
        return free

    def _shrunk(self, enough: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
        """From capacities that meet the goal, down as far as effort goes, but not below `least`.

        All channels alike at first, then one after the other, the dearest first.
        """
        capacities = list(enough)
        with contextlib.suppress(OutOfEffort):
            for _ in range(_HALVINGS):
                half = [
                    low + (high - low) // 2 for low, high in zip(least, capacities, strict=True)
                ]
                if half == capacities or self._conflict(half) is not None:
                    break
                capacities = half
            for place in sorted(range(len(capacities)), key=lambda p: (-self._cost[p], p)):
                low, high = least[place], capacities[place]
                while low < high:
                    middle = (low + high) // 2
                    candidate = [*capacities[:place], middle, *capacities[place + 1 :]]
                    if self._conflict(candidate) is None:
                        high = capacities[place] = middle
                    else:
                        low = middle + 1
        return tuple(capacities)

    def _spent(self) -> float:
        work = self._storage.work - self._started + self._cover.work
        return work / (1000 * self._effort) if self._effort else 1

    def _tell(self) -> None:
        if self._report is not None:
            enough = None if self._best is None else self._size(self._best)
            self._report(Progress(self._goal, self._at_least, enough, self._spent()))

    def _size(self, capacities: Sequence[int]) -> int:
        return sum(c * cost for c, cost in zip(capacities, self._cost, strict=True))

    def _point(self, capacities: Sequence[int]) -> Point:
        named = dict(zip(self._storage.names, capacities, strict=True))
        return Point(named, self._size(capacities), self._storage.period(capacities))
