"""The smallest storage distribution that meets one goal, found as an implicit hitting set.

What is known of the goal are conflicts (`csdf.buffers.conflicts`) and cycle bounds
(`csdf.buffers.cycle_bounds`). The cheapest distribution that meets them
(`csdf.buffers.hitting_set`) costs at most as much as one that meets the goal. Its analysis
(`csdf.buffers.storage`) either shows that it meets the goal, and then it is a smallest one, or
yields a new conflict, which is strengthened as far as it holds. The channels of the conflict then
get sufficient room, so that the next analysis yields a conflict of other channels, until the goal
is met. That distribution, reduced as far as the goal allows, is the answer if the effort is spent
before a smallest one is proved.

Capacities count in steps above the least (`csdf.buffers.storage.Storage.capacities`).

Source: E. Moreno-Centeno, R. M. Karp, "The implicit hitting set approach to solve combinatorial
optimization problems with an application to multigenome alignment", Operations Research, 2013.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from csdf.buffers.conflicts import Conflict, OutOfEffort, PeriodGoal, strengthened
from csdf.buffers.hitting_set import HittingSet
from csdf.buffers.storage import Storage

_HALVINGS = 40
"""How often `_reduced` halves all capacities, at most, before it takes channel by channel."""


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

        The first `as_found` conflicts are not strengthened: that pays where the goal is near.
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

    def enough(self) -> tuple[int, ...]:
        """Return a distribution that meets the goal, after `smallest` has given up."""
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
        """Return the cheapest distribution once it violates no cycle bound; learns the bounds."""
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
        """Give the channels of the conflict so much room that they do not hold the goal up."""
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

        First all channels alike, then one after the other, the most expensive first.
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
