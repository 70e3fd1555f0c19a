"""Conflicts and cycle bounds: what a storage distribution lacks to meet a goal.

Capacities count here in steps above the least; a step is the smallest increase of a capacity that
makes a difference.

**Conflicts.** A conflict names the storage dependencies of a distribution that misses the goal:
numbers of steps for some channels, or for some channels in series together (`csdf.timing.waits`). A
distribution that stays below all of them misses the goal too. A conflict is the stronger, the fewer
and the higher these numbers are. The conflict that an analysis finds (`csdf.buffers.storage`) is
seldom the strongest. So `strengthened` raises the distribution as long as it misses the goal, until
any more room would meet it in each channel that has not sufficient room already. This saves one
conflict per step on the way.

**Cycle bounds.** These are lower bounds on the capacities along a cycle of channels for any
schedule. A firing that waits for tokens of a channel waits for a firing of the producer that is
earlier by the initial tokens of the channel, at most. Following these waits around a cycle of
channels leads back to the same actor, at a firing that is earlier by as many iterations as all
initial tokens on the cycle are worth, up to differences of the rates within an iteration. So a
period λ requires of every cycle

    Σ tokens / tokens per iteration − Σ δ ≥ T / λ,

where T is the least time of the firings around the cycle. For a channel into which an actor
produces and one from which it consumes, δ is the least lead of consumption over production, in
iterations, at the end of any phase that produces. The tokens of a capacity are its free room. So
this bounds a weighted sum of capacities, where a conflict requires one of several. If room may be
divided along a cycle in very many ways, one bound replaces very many conflicts. The condition is
necessary for every schedule; with the greatest leads instead of the least, it is sufficient for a
strictly periodic one.

Sources: for strengthening, the shrinking of cores in E. Moreno-Centeno, R. M. Karp, "The implicit
hitting set approach to solve combinatorial optimization problems with an application to multigenome
alignment", Operations Research, 2013; for the sufficient condition, B. Bodin, A. Munier-Kordon, B.
Dupont de Dinechin, "Periodic schedules for cyclo-static dataflow", ESTIMedia 2013.
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

MOST_WORK = 3_000_000
"""Phases × pairs of channels up to which cycle bounds are used."""


@dataclass(frozen=True, slots=True)
class PeriodGoal:
    """A period to reach, or to beat if `strict`; with None, to be live."""

    period: Fraction | None
    strict: bool = False

    def misses(self, period: Fraction | None) -> bool:
        """Return whether `period` (None: deadlock) misses the goal."""
        if period is None or self.period is None:
            return period is None
        return period >= self.period if self.strict else period > self.period


@dataclass(frozen=True, slots=True)
class Need:
    """A storage dependency: the sum of steps that the channels at `places` need."""

    places: tuple[int, ...]
    steps: int

    def lacks(self, taken: Sequence[int]) -> int:
        """Return how many steps are missing; 0 or less if none are."""
        return self.steps - sum(taken[place] for place in self.places)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A proof that a distribution below all needs has `period` (None: deadlock) or a longer one.

    Without needs, that is true of all distributions. No place is in two needs.
    """

    period: Fraction | None
    needed: tuple[Need, ...]


Analysis = Callable[[Sequence[int]], Conflict | None]
"""A function that returns why steps, by place, miss a goal; None if they meet it.

May raise `OutOfEffort`.
"""


class OutOfEffort(CsdfError):  # noqa: N818 (nothing is wrong)
    """The effort of a search is spent."""


def strengthened(
    conflict: Conflict,
    taken: Sequence[int],
    analysis: Analysis,
    sufficient: Sequence[int],
    price: Sequence[int],
) -> Conflict:
    """Return a strong conflict that implies `conflict`, which is the analysis of steps `taken`.

    `sufficient` are steps beyond which no channel delays the goal, `price` the cost of a step.
    First all needs are raised by the same cost, so that any distribution that satisfies the
    conflict costs much; then each by itself, the most expensive first.
    """
    strengthening = _Strengthening(conflict, taken, analysis, sufficient, price)
    with contextlib.suppress(OutOfEffort):
        strengthening.raise_all()
        needed = strengthening.conflict.needed
        for need in sorted(needed, key=lambda n: -price[strengthening.cheapest_place(n)]):
            strengthening.raise_one(need)
    return strengthening.conflict


class _Strengthening:
    """A conflict, and steps `taken` that lack exactly one step of each of its needs."""

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

    def raise_all(self) -> None:
        """Raise all needs by the same cost while the goal is missed."""
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

    def raise_one(self, need: Need) -> None:
        """Raise one need while the goal is missed."""
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
    """Call `misses` for rising counts while it holds, by bisection; it fails at `too_many`."""
    low, high = 0, 1
    while high < too_many and misses(high):
        low, high = high, 2 * high
    high = min(high, too_many)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if misses(middle) else (low, middle)


@dataclass(frozen=True, slots=True)
class CycleBound:
    """The requirement Σ weight × steps ≥ `at_least`; `weights` are pairs (place, weight)."""

    weights: tuple[tuple[int, int], ...]
    at_least: int


class CycleBounds:
    """The search for cycle bounds that distributions violate; `edges` counts pairs of arcs."""

    def __init__(
        self,
        graph: Lowered,
        repetitions: Sequence[int],
        places: Mapping[int, int],
    ) -> None:
        """In `graph`, the sized channels have their least capacities; `fits` limits its size.

        `places` maps the arcs of free room to the places of their channels.
        """
        self._places = places
        moved = [repetitions[arc.source] * sum(arc.production) for arc in graph.arcs]
        self._unit = math.lcm(*moved)
        worth = [self._unit // count for count in moved]
        grain = [math.gcd(*arc.production, *arc.consumption) for arc in graph.arcs]
        # In units: what an arc holds with the least capacities, rounded to grains, and a step.
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

        If there are several, it is one that they violate by much.
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
    """Return the pairs of an arc and an arc that leads to the source of the former."""
    into: dict[int, list[int]] = {}
    for number, arc in enumerate(graph.arcs):
        into.setdefault(arc.target, []).append(number)
    return [
        (number, other)
        for number, arc in enumerate(graph.arcs)
        for other in into[arc.source]
        if arc.source in into
    ]
