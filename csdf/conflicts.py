"""What is asked of capacities, and why some do not do it.

A **conflict** names a capacity for each of some channels: a distribution that stays below all of
them misses the goal. It is the stronger, the fewer its channels and the higher their capacities.
The conflict that an analysis finds (`csdf.storage`) is seldom the strongest: `raised` goes up from
it to a distribution that still misses the goal, but would meet it with any more room in any channel
that is not ample already. So it says at once what else takes one conflict per step.

Source for going up: the shrinking of cores in implicit hitting sets, as in E. Moreno-Centeno,
R. M. Karp, "The implicit hitting set approach to solve combinatorial optimization problems with an
application to multigenome alignment", Operations Research, 2013.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Goal:
    """A period to reach (None: just to live), or, if `strict`, to beat."""

    period: Fraction | None
    strict: bool = False

    def misses(self, period: Fraction | None) -> bool:
        """Whether `period` (None: deadlock) is not good enough."""
        if period is None or self.period is None:
            return period is None
        return period >= self.period if self.strict else period > self.period


@dataclass(frozen=True, slots=True)
class Conflict:
    """No distribution that stays below `needed` on all its channels beats `period` (None: lives).

    `needed` is by place among the sized channels, as (place, capacity). If it is empty, no
    distribution at all does.
    """

    period: Fraction | None
    needed: tuple[tuple[int, int], ...]

    def holds(self, capacities: Sequence[int]) -> bool:
        """Whether it speaks of these capacities."""
        return all(capacities[place] < needed for place, needed in self.needed)


Analysis = Callable[[Sequence[int]], Conflict | None]
"""Tells why capacities miss a goal, or None if they meet it; may raise `OutOfEffort`."""


class OutOfEffort(Exception):  # noqa: N818 (nothing is wrong)
    """No more is to be analysed."""


def raised(
    conflict: Conflict,
    analysis: Analysis,
    ample: Sequence[int],
    grain: Sequence[int],
    cost: Sequence[int],
) -> Conflict:
    """A conflict that `conflict` follows from, as strong as can be.

    `ample` are capacities beyond which no channel can be felt. Channels change what they do in
    steps of `grain`, which cost `cost` per token. All channels are raised alike first, so that
    whatever fulfils the conflict costs much; then one after the other, the dearest first.
    """
    climb = _Climb(conflict, analysis, ample, grain, cost)
    with contextlib.suppress(OutOfEffort):
        climb.together()
        for place in sorted(climb.open(), key=lambda p: (-cost[p] * grain[p], p)):
            climb.alone(place)
    needed = tuple((place, climb.below[place] + 1) for place in climb.open())
    return Conflict(climb.period, needed)


class _Climb:
    """`below` misses the goal; it goes up as that is found of larger distributions."""

    def __init__(
        self,
        conflict: Conflict,
        analysis: Analysis,
        ample: Sequence[int],
        grain: Sequence[int],
        cost: Sequence[int],
    ) -> None:
        self._analysis, self._ample, self._grain, self._cost = analysis, ample, grain, cost
        self.below = list(ample)
        self._adopt(conflict)

    def _adopt(self, conflict: Conflict) -> None:
        self.period = conflict.period
        self.below = list(self._ample)
        for place, needed in conflict.needed:
            self.below[place] = min(self._ample[place], needed - 1)

    def open(self) -> list[int]:
        """The places that are not ample yet."""
        return [p for p, (b, a) in enumerate(zip(self.below, self._ample, strict=True)) if b < a]

    def _misses(self, capacities: Sequence[int]) -> bool:
        found = self._analysis(capacities)
        if found is not None:
            self._adopt(found)
        return found is not None

    def together(self) -> None:
        """Up by the same cost in all open channels, as long as that will do."""
        places = self.open()
        if len(places) < 2:
            return
        start = list(self.below)
        step = min(max(1, self._cost[p]) * self._grain[p] for p in places)

        def up(steps: int) -> list[int]:
            found = list(self.below)
            for p in places:
                alike = min(self._ample[p], start[p] + steps * step // max(1, self._cost[p]))
                found[p] = max(found[p], alike)
            return found

        most = max(-((start[p] - self._ample[p]) * max(1, self._cost[p]) // step) for p in places)
        self._highest(lambda steps: self._misses(up(steps)), most)

    def alone(self, place: int) -> None:
        """Up as far as can be in one channel."""
        if self.below[place] >= self._ample[place]:
            return
        if self._misses([*self.below[:place], self._ample[place], *self.below[place + 1 :]]):
            return
        start, grain = self.below[place], self._grain[place]

        def misses(steps: int) -> bool:
            capacities = list(self.below)
            capacities[place] = start + steps * grain
            return capacities[place] <= self.below[place] or self._misses(capacities)

        # What is known to be missed ends just below a capacity that is felt.
        self._highest(misses, -((start - self._ample[place]) // grain))

    @staticmethod
    def _highest(misses: Callable[[int], bool], too_many: int) -> None:
        """Finds how many steps up still miss the goal, by doubling them and then halving."""
        low, high = 0, 1
        while high < too_many and misses(high):
            low, high = high, 2 * high
        high = min(high, too_many)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if misses(middle) else (low, middle)
