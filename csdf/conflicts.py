"""What is asked of capacities, and why some do not do it.

Capacities count here in steps above the least: the steps in which their channel feels more room. A
**conflict** names a number of steps for each of some channels, or of some channels in series
together (`csdf.series`): a distribution that stays below all of them misses the goal. It is the
stronger, the fewer and the higher they are. The conflict that an analysis finds (`csdf.storage`) is
seldom the strongest: `raised` goes up from it to a distribution that still misses the goal, but
would meet it with any more room in any channel that is not ample already. So it says at once what
else takes one conflict per step.

Source for going up: the shrinking of cores in implicit hitting sets, as in E. Moreno-Centeno,
R. M. Karp, "The implicit hitting set approach to solve combinatorial optimization problems with an
application to multigenome alignment", Operations Research, 2013.
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
    """So many steps in all the `places` together. Places are numbers of sized channels."""

    places: tuple[int, ...]
    steps: int

    def lacks(self, taken: Sequence[int]) -> int:
        """How many steps are missing; 0 or less if none are."""
        return self.steps - sum(taken[place] for place in self.places)


@dataclass(frozen=True, slots=True)
class Conflict:
    """No distribution that lacks all that is `needed` beats `period` (None: lives).

    If nothing is, no distribution at all does. No place is in two needs.
    """

    period: Fraction | None
    needed: tuple[Need, ...]


Analysis = Callable[[Sequence[int]], Conflict | None]
"""Tells why so many steps, by place, miss a goal, or None if they meet it.

May raise `OutOfEffort`.
"""


class OutOfEffort(CsdfError):  # noqa: N818 (nothing is wrong)
    """No more is to be analysed."""


def raised(
    conflict: Conflict,
    taken: Sequence[int],
    analysis: Analysis,
    ample: Sequence[int],
    price: Sequence[int],
) -> Conflict:
    """A conflict that `conflict`, which was found for the steps `taken`, follows from.

    It is as strong as can be found. `ample` are steps beyond which no channel can be felt, `price`
    what a step costs. All channels are raised alike first, so that whatever fulfils the conflict
    costs much; then one after the other, the dearest first.
    """
    climb = _Climb(conflict, taken, analysis, ample, price)
    with contextlib.suppress(OutOfEffort):
        climb.together()
        for need in sorted(climb.conflict.needed, key=lambda n: -price[climb.way_up(n)]):
            climb.alone(need)
    return climb.conflict


class _Climb:
    """`taken` lacks just one step of all that `conflict` needs, and no other place is short."""

    def __init__(
        self,
        conflict: Conflict,
        taken: Sequence[int],
        analysis: Analysis,
        ample: Sequence[int],
        price: Sequence[int],
    ) -> None:
        self._analysis, self._ample, self._price = analysis, ample, price
        self._adopt(conflict, taken)

    def _adopt(self, conflict: Conflict, taken: Sequence[int]) -> None:
        self.conflict = conflict
        self.taken = list(self._ample)
        for need in conflict.needed:
            for place in need.places:
                self.taken[place] = taken[place]
            self.taken[self.way_up(need)] += need.lacks(taken) - 1

    def way_up(self, need: Need) -> int:
        """The place where steps that are needed are taken."""
        return min(need.places, key=lambda place: (self._price[place], place))

    def _misses(self, taken: Sequence[int]) -> bool:
        """Whether these steps are known to miss the goal; then their conflict is adopted.

        It is only if the one that is known follows from it.
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
        """Up by the same cost in all that is needed, as long as that will do."""
        places = [self.way_up(need) for need in self.conflict.needed]
        if len(places) < 2:
            return
        start = list(self.taken)
        prices = {place: max(1, self._price[place]) for place in places}
        unit = min(prices.values())

        def misses(count: int) -> bool:
            taken = list(self.taken)
            for place in places:
                alike = min(self._ample[place], start[place] + count * unit // prices[place])
                taken[place] = max(taken[place], alike)
            return self._misses(taken)

        farthest = max((self._ample[p] - start[p]) * prices[p] for p in places)
        _highest(misses, -(-farthest // unit))

    def alone(self, need: Need) -> None:
        """Up as far as can be in what one need is about."""
        place = self.way_up(need)
        if not any(place in one.places for one in self.conflict.needed):
            return
        if self._misses([*self.taken[:place], self._ample[place], *self.taken[place + 1 :]]):
            return
        start = self.taken[place]

        def misses(count: int) -> bool:
            taken = list(self.taken)
            taken[place] = start + count
            return taken[place] <= self.taken[place] or self._misses(taken)

        _highest(misses, self._ample[place] - start)


def _highest(misses: Callable[[int], bool], too_many: int) -> None:
    """Goes up as far as `misses` holds, by doubling and then halving; it does not at `too_many`."""
    low, high = 0, 1
    while high < too_many and misses(high):
        low, high = high, 2 * high
    high = min(high, too_many)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if misses(middle) else (low, middle)
