"""Goals for storage distributions, and conflicts: proofs that a distribution misses its goal.

Capacities count here in steps above the least; a step is the smallest increase that changes what
the channel lets happen. A **conflict** names the storage dependencies of a distribution that misses
the goal: numbers of steps for some channels, or for some channels in series together
(`csdf.model.channels`). A distribution that stays below all of them misses the goal too. A conflict
is the stronger, the fewer and the higher these numbers are. The conflict that an analysis finds
(`csdf.buffers.storage`) is seldom the strongest: `strengthened` goes up from it to a distribution
that still misses the goal, but would meet it with any more room in any channel that has not
sufficient room already. That saves a conflict per step on the way.

Source: the shrinking of cores in implicit hitting sets, as in E. Moreno-Centeno, R. M. Karp, "The
implicit hitting set approach to solve combinatorial optimization problems with an application to
multigenome alignment", Operations Research, 2013.

Lower bounds on the capacities along a cycle of channels, whatever the schedule.

A firing that waits for tokens of a channel waits for a firing of the producer that is earlier by
the initial tokens of the channel, at most. Following these waits around a cycle of channels, one
comes back to the same actor, at a firing that is earlier by as many iterations as all initial
tokens on the cycle are worth, give or take what the rates of the phases differ. So a period λ
requires of every cycle

    Σ tokens / tokens per iteration − Σ δ ≥ T / λ,

where T is the least time to go round. For a channel into which an actor produces and one from which
it consumes, δ is the least lead of consumption over production, in iterations, at the end of any
phase that produces. The tokens of a capacity are its free room. So this bounds a weighted sum of
capacities, where a conflict (`csdf.buffers.conflicts`) requires one of several: where room may be
given to a cycle in very many ways, one bound stands for very many conflicts. The condition is
necessary for every schedule; with the greatest leads instead of the least, it is sufficient for a
strictly periodic one.

Source: B. Bodin, A. Munier-Kordon, B. Dupont de Dinechin, "Periodic schedules for cyclo-static
dataflow", ESTIMedia 2013, for the sufficient condition.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from csdf.errors import CsdfError
from csdf.model.lowered import Arc, Lowered, integers
from csdf.timing.cycle_ratio import PolicyIteration
from csdf.timing.event_graph import time_unit


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


MOST_WORK = 3_000_000
"""Phases × pairs of channels up to which all δ are computed; beyond, there are no bounds."""


@dataclass(frozen=True, slots=True)
class CycleBound:
    """The requirement Σ weight × steps ≥ `at_least`, with weights by place of the sized channels.

    Steps count above the least capacity, as in `csdf.buffers.conflicts`.
    """

    weights: tuple[tuple[int, int], ...]
    at_least: int


class CycleBounds:
    """The cycles of `graph`, of which some channels are sized.

    `places` maps the arcs of free room to the places of their channels; `edges` counts the pairs of
    an arc and the next one on a cycle.
    """

    def __init__(
        self,
        graph: Lowered,
        repetitions: Sequence[int],
        places: Mapping[int, int],
    ) -> None:
        """In `graph`, the sized channels have their least capacities. See `fits` for its size."""
        self._places = places
        moved = [repetitions[arc.source] * sum(arc.production) for arc in graph.arcs]
        self._unit = math.lcm(*moved)
        worth = [self._unit // count for count in moved]
        grain = [math.gcd(*arc.production, *arc.consumption) for arc in graph.arcs]
        # In units: what an arc holds with the least capacities, in whole grains; and a step more.
        self._held = [
            arc.tokens // step * step * one
            for arc, step, one in zip(graph.arcs, grain, worth, strict=True)
        ]
        self._step = [step * one for step, one in zip(grain, worth, strict=True)]
        self._time_unit = time_unit(graph)
        times = [
            min(t for t, rate in zip(graph.times[arc.source], arc.production, strict=True) if rate)
            for arc in graph.arcs
        ]
        self._times = [int(time * self._time_unit) for time in times]
        pairs = _pairs(graph)
        self.edges = len(pairs)
        self._from = np.array([one for one, _ in pairs], np.int64)
        self._to = np.array([other for _, other in pairs], np.int64)
        self._leads = [
            self._lead(graph.arcs[one], worth[one], graph.arcs[other], worth[other])
            for one, other in pairs
        ]
        self._search = PolicyIteration(len(graph.arcs), self._from)

    @staticmethod
    def _lead(put: Arc, worth: int, taken: Arc, taken_worth: int) -> int:
        """Return δ of an actor that produces into `put` and consumes from `taken`, in units."""
        after = accumulate(put.production), accumulate(taken.consumption)
        ends = zip(put.production, *after, strict=True)
        return min(taken_worth * b - worth * a for rate, a, b in ends if rate)

    def violated(self, taken: Sequence[int], goal: PeriodGoal) -> CycleBound | None:
        """Return a bound of the goal that these steps violate; None if there is none.

        Where there are several, it is one that they violate by much.
        """
        worth = list(self._held)
        for arc, place in self._places.items():
            worth[arc] += self._step[arc] * taken[place]
        delay = integers(
            worth[one] - lead for one, lead in zip(self._from.tolist(), self._leads, strict=True)
        )
        times, at_least = [1] * len(worth), Fraction(len(worth) + 1)
        if goal.period:
            times, at_least = self._times, goal.period * self._time_unit / self._unit
        start = Fraction(0) if goal.strict else at_least
        found = self._search.run(self._to, integers(times)[self._from], delay, start, at_least)
        if not found.cycle or (found.ratio is not None and found.ratio < at_least):
            return None
        cycle = np.array(found.cycle)
        arcs = self._from[cycle].tolist()
        needed = 1
        if goal.period:
            least = sum(self._times[arc] for arc in arcs) / at_least
            needed = math.floor(least) + 1 if goal.strict else math.ceil(least)
        needed -= sum(delay[cycle].tolist())  # in Python: each fits into int64, the sum need not
        weights = {self._places[arc]: self._step[arc] for arc in arcs if arc in self._places}
        needed += sum(weight * taken[place] for place, weight in weights.items())
        return CycleBound(tuple(weights.items()), needed)


def fits(graph: Lowered) -> bool:
    """Return whether the bounds of `graph` can be computed within `MOST_WORK`."""
    work = sum(len(graph.times[graph.arcs[one].source]) for one, _ in _pairs(graph))
    return work <= MOST_WORK


def _pairs(graph: Lowered) -> list[tuple[int, int]]:
    """Return pairs of an arc and an arc into the actor that produces into the former."""
    into: dict[int, list[int]] = {}
    for number, arc in enumerate(graph.arcs):
        into.setdefault(arc.target, []).append(number)
    return [
        (number, other)
        for number, arc in enumerate(graph.arcs)
        for other in into[arc.source]
        if arc.source in into
    ]
