"""Goals for storage distributions, and conflicts: proofs that a distribution misses its goal.

Capacities count here in steps above the least; a step is the smallest increase that changes what
the channel lets happen. A **conflict** names the storage dependencies of a distribution that misses
the goal: numbers of steps for some channels, or for some channels in series together
(`csdf.model.series`). A distribution that stays below all of them misses the goal too. A conflict
is the stronger, the fewer and the higher these numbers are. The conflict that an analysis finds
(`csdf.buffers.storage`) is seldom the strongest: `strengthened` goes up from it to a distribution
that still misses the goal, but would meet it with any more room in any channel that has not
sufficient room already. That saves a conflict per step on the way.

Source: the shrinking of cores in implicit hitting sets, as in E. Moreno-Centeno, R. M. Karp, "The
implicit hitting set approach to solve combinatorial optimization problems with an application to
multigenome alignment", Operations Research, 2013.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import CsdfError


@dataclass(frozen=True, slots=True)
class PeriodGoal:
    """A period to reach (None: just to live), or, if `strict`, to beat."""

    period: Fraction | None
    strict: bool = False

    def misses(self, period: Fraction | None) -> bool:
        """Whether `period` (None: deadlock) is not good enough."""
        if period is None or self.period is None:
            return period is None
        return period >= self.period if self.strict else period > self.period


@dataclass(frozen=True, slots=True)
class Need:
    """A storage dependency: the `places`, numbers of sized channels, lack room for so many `steps`.

    The steps of several places count together.
    """

    places: tuple[int, ...]
    steps: int

    def lacks(self, taken: Sequence[int]) -> int:
        """Return how many steps are missing; 0 or less if none are."""
        return self.steps - sum(taken[place] for place in self.places)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A proof that distributions below all that is `needed` do not beat `period` (None: deadlock).

    If nothing is needed, no distribution at all beats it. No place is in two needs.
    """

    period: Fraction | None
    needed: tuple[Need, ...]


Analysis = Callable[[Sequence[int]], Conflict | None]
"""Returns why a distribution, in steps by place, misses a goal; None if it meets the goal.

May raise `OutOfEffort`.
"""


class OutOfEffort(CsdfError):  # noqa: N818 (nothing is wrong)
    """The effort that was allowed is spent."""


def strengthened(
    conflict: Conflict,
    taken: Sequence[int],
    analysis: Analysis,
    sufficient: Sequence[int],
    price: Sequence[int],
) -> Conflict:
    """Return the strongest conflict found that implies `conflict`, an analysis of steps `taken`.

    `sufficient` are steps beyond which no channel holds the goal up, `price` the cost of a step.
    First all channels go up alike, so that whatever hits the conflict costs much; then one after
    the other, the most expensive first.
    """
    strengthening = _Strengthening(conflict, taken, analysis, sufficient, price)
    with contextlib.suppress(OutOfEffort):
        strengthening.together()
        needed = strengthening.conflict.needed
        for need in sorted(needed, key=lambda n: -price[strengthening.cheapest_place(n)]):
            strengthening.alone(need)
    return strengthening.conflict


class _Strengthening:
    """A conflict, and steps `taken` that lack one step of each of its needs and nothing else."""

    def __init__(
        self,
        conflict: Conflict,
        taken: Sequence[int],
        analysis: Analysis,
        sufficient: Sequence[int],
        price: Sequence[int],
    ) -> None:
        self._analysis, self._sufficient, self._price = analysis, sufficient, price
        self._adopt(conflict, taken)

    def _adopt(self, conflict: Conflict, taken: Sequence[int]) -> None:
        self.conflict = conflict
        self.taken = list(self._sufficient)
        for need in conflict.needed:
            for place in need.places:
                self.taken[place] = taken[place]
            self.taken[self.cheapest_place(need)] += need.lacks(taken) - 1

    def cheapest_place(self, need: Need) -> int:
        """Return the place of the need where a step costs least."""
        return min(need.places, key=lambda place: (self._price[place], place))

    def _misses(self, taken: Sequence[int]) -> bool:
        """Return whether these steps miss the goal for a conflict that implies the known one.

        That conflict then takes the place of the known one.
        """
        found = self._analysis(taken)
        if found is None or not self._follows_from(found):
            return False
        self._adopt(found, taken)
        return True

    def _follows_from(self, found: Conflict) -> bool:
        most = {place: need for need in self.conflict.needed for place in need.places}
        for need in found.needed:
            if any(place not in most for place in need.places):
                return False
            shared = {most[place] for place in need.places}
            if sum(one.steps - 1 for one in shared) >= need.steps:
                return False
        return True

    def together(self) -> None:
        """Go up by the same cost in all needs, as far as the goal is still missed."""
        places = [self.cheapest_place(need) for need in self.conflict.needed]
        if len(places) < 2:
            return
        start = list(self.taken)
        prices = {place: max(1, self._price[place]) for place in places}
        unit = min(prices.values())

        def misses(count: int) -> bool:
            taken = list(self.taken)
            for place in places:
                alike = min(self._sufficient[place], start[place] + count * unit // prices[place])
                taken[place] = max(taken[place], alike)
            return self._misses(taken)

        farthest = max((self._sufficient[p] - start[p]) * prices[p] for p in places)
        _highest(misses, -(-farthest // unit))

    def alone(self, need: Need) -> None:
        """Go up in one need, as far as the goal is still missed."""
        place = self.cheapest_place(need)
        if not any(place in one.places for one in self.conflict.needed):
            return
        if self._misses([*self.taken[:place], self._sufficient[place], *self.taken[place + 1 :]]):
            return
        start = self.taken[place]

        def misses(count: int) -> bool:
            taken = list(self.taken)
            taken[place] = start + count
            return taken[place] <= self.taken[place] or self._misses(taken)

        _highest(misses, self._sufficient[place] - start)


def _highest(misses: Callable[[int], bool], too_many: int) -> None:
    """Go up as far as `misses` holds, by doubling, then halving; it does not at `too_many`."""
    low, high = 0, 1
    while high < too_many and misses(high):
        low, high = high, 2 * high
    high = min(high, too_many)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if misses(middle) else (low, middle)
