"""The smallest distribution that meets one goal, found from below.

What is known of a goal are conflicts (`csdf.conflicts`) and sums (`csdf.sums`). The smallest
distribution that they allow (`csdf.cover`) is at most as large as one that meets the goal. It is
analysed (`csdf.storage`): if it meets the goal, it is a smallest one; otherwise there is a new
conflict, which is raised as far as it holds. Its channels are then given ample room, and what still
misses the goal gives conflicts of other channels. When the goal is met, room is taken back as far
as it still is: that is a distribution that may not be a smallest, but is there if effort ends.

Capacities count in steps above the least (`csdf.storage.Storage.capacities`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from csdf.conflicts import Conflict, OutOfEffort, PeriodGoal, raised
from csdf.cover import Cover
from csdf.storage import Storage

_HALVINGS = 40
"""How often ample capacities are halved, at most, before each channel is looked at by itself."""


class Ascent:
    """`at_least` is proved to be needed, `best` meets the goal if it is known.

    Both are without what the least capacities cost. The `goal` may be changed for a higher one.
    """

    def __init__(
        self,
        storage: Storage,
        price: Sequence[int],
        goal: PeriodGoal,
        conflicts: list[Conflict],
        effort: int,
        report: Callable[[Ascent], None],
    ) -> None:
        """`price` is that of a step, by place; `effort` counts as `Storage.work` does.

        What is learnt is added to the `conflicts`, which may be of any goal.
        """
        self.goal = goal
        self.at_least = 0
        self.best: tuple[int, ...] | None = None
        self._storage, self._price, self._conflicts = storage, price, conflicts
        self._effort, self._report = effort, report
        self._started = storage.work
        self._cover = Cover(price)
        for conflict in conflicts:
            if goal.misses(conflict.period):
                self._cover.add(conflict)

    @property
    def spent(self) -> float:
        """The share of the effort."""
        work = self._storage.work - self._started + self._cover.work
        return work / self._effort if self._effort else 1

    def cost(self, taken: Sequence[int]) -> int:
        """Of so many steps."""
        return sum(price * steps for price, steps in zip(self._price, taken, strict=True))

    def smallest(self, as_found: int = 0) -> tuple[int, ...]:
        """A smallest distribution that meets the goal. Raises `OutOfEffort`.

        So many conflicts are taken as they are found, since the goal is expected to be near.
        """
        self.best = None
        rounds = -as_found
        while True:
            taken, self.at_least = self._cover.smallest()
            if rounds >= 0:
                taken = self._summed(taken)
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
            free = taken
            while conflict is not None:
                free = self._freed(free, self._learn(self._raised(conflict, free)))
                conflict = self._conflict(free)
            if rounds & (rounds - 1) == 0:
                self._keep(self._shrunk(free, taken))

    def enough(self) -> tuple[int, ...]:
        """A distribution that meets the goal, after `smallest` has given up."""
        if self.best is None:
            self._started = self._storage.work + self._cover.work
            free = tuple(0 for _ in self._price)
            while (conflict := self._storage.conflict(free, self.goal)) is not None:
                free = self._freed(free, conflict)
            self._keep(self._shrunk(free, [0] * len(free)))
        assert self.best is not None  # noqa: S101 (one has been kept)
        return self.best

    def _proved(self) -> tuple[int, ...] | None:
        """`best`, if nothing is smaller."""
        return (
            self.best if self.best is not None and self.cost(self.best) <= self.at_least else None
        )

    def _keep(self, taken: tuple[int, ...]) -> None:
        self.best = taken if self.best is None else min(self.best, taken, key=self.cost)

    def _summed(self, taken: tuple[int, ...]) -> tuple[int, ...]:
        """The smallest distribution, once no sum is known that it misses."""
        while self.spent < 1:
            free, missed = taken, 0
            while (wanted := self._storage.missed_sum(free, self.goal)) is not None:
                self._cover.add_sum(wanted)
                free = self._with_ample(free, {place for place, _ in wanted.weights})
                missed += 1
            if not missed:
                break
            taken, self.at_least = self._cover.smallest()
        return taken

    def _conflict(self, taken: Sequence[int]) -> Conflict | None:
        """Why so many steps miss the goal, if they do. Raises `OutOfEffort`."""
        if self.spent >= 1:
            raise OutOfEffort
        return self._storage.conflict(taken, self.goal)

    def _raised(self, conflict: Conflict, taken: Sequence[int]) -> Conflict:
        ample = self._storage.ample(self.goal)
        return raised(conflict, taken, self._conflict, ample, self._price)

    def _learn(self, conflict: Conflict) -> Conflict:
        self._conflicts.append(conflict)
        self._cover.add(conflict)
        return conflict

    def _freed(self, taken: tuple[int, ...], conflict: Conflict) -> tuple[int, ...]:
        """With so much room in the channels of the conflict that they matter no more."""
        return self._with_ample(taken, {p for need in conflict.needed for p in need.places})

    def _with_ample(self, taken: tuple[int, ...], places: set[int]) -> tuple[int, ...]:
        ample = self._storage.ample(self.goal)
        # Where firings overtake each other, nothing is known to be ample.
        more = [
            most if steps < most else 2 * steps + 1
            for steps, most in zip(taken, ample, strict=True)
        ]
        return tuple(more[p] if p in places else steps for p, steps in enumerate(taken))

    def _shrunk(self, enough: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
        """From steps that meet the goal, down as far as effort goes, but not below `least`.

        All channels alike at first, then one after the other, the dearest first.
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
