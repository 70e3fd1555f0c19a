"""What cycles of channels need in sum, whatever the schedule.

A firing that waits for tokens of a channel waits for one that lies back by the tokens which are in
the channel at the start, at most. Going back round a cycle of channels like this, one comes to an
actor's firing that is earlier by as many iterations as all tokens on the cycle are worth, give or
take what the phases' rates differ. So a period λ asks of every cycle

    Σ tokens / tokens per iteration − Σ δ ≥ T / λ.

T is the least time to go round. For a channel that an actor puts tokens into, and one that it takes
tokens from, δ is the least lead of what it has taken over what it has put, in iterations, at the
end of any of its phases that puts some. The tokens of a capacity are its free room. So this bounds
capacities in sum, where a conflict (`csdf.conflicts`) asks for one of each by itself: where room
may be given to a cycle in very many ways, it stands for very many conflicts. It is necessary for
every schedule, as the like condition with the greatest leads is sufficient for a strictly periodic
one.

Source: B. Bodin, A. Munier-Kordon, B. Dupont de Dinechin, "Periodic schedules for cyclo-static
dataflow", ESTIMedia 2013, for the sufficient condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from csdf.conflicts import PeriodGoal
from csdf.cycle_ratio import PolicyIteration
from csdf.event_graph import time_unit
from csdf.lowered import Arc, Lowered
from csdf.whole_numbers import integers

MOST_WORK = 3_000_000
"""Phases × pairs of channels that are looked at to know all δ; else no sums are known."""


@dataclass(frozen=True, slots=True)
class Sum:
    """Σ weight × steps must be `at_least`, with weights by place among the sized channels.

    Steps are those above the least capacity, as in `csdf.conflicts`.
    """

    weights: tuple[tuple[int, int], ...]
    at_least: int


class Sums:
    """The cycles of `graph`; `places` tells for arcs of free room which sized channel's it is.

    `edges` are the ways to go from one arc to the next.
    """

    def __init__(
        self,
        graph: Lowered,
        repetitions: Sequence[int],
        places: Mapping[int, int],
    ) -> None:
        """In `graph`, the sized channels have their least capacities. See `fits`."""
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
        """δ of an actor that puts tokens into `put` and takes some from `taken`, in units."""
        after = accumulate(put.production), accumulate(taken.consumption)
        ends = zip(put.production, *after, strict=True)
        return min(taken_worth * b - worth * a for rate, a, b in ends if rate)

    def missed(self, taken: Sequence[int], goal: PeriodGoal) -> Sum | None:
        """A sum that these steps do not reach, though the goal asks for it; None if there is none.

        Where there are several, one that is missed by much.
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
        return Sum(tuple(weights.items()), needed)


def fits(graph: Lowered) -> bool:
    """Whether `Sums` can be told in little time."""
    work = sum(len(graph.times[graph.arcs[one].source]) for one, _ in _pairs(graph))
    return work <= MOST_WORK


def _pairs(graph: Lowered) -> list[tuple[int, int]]:
    """Arcs, and arcs into the actors that put tokens into them."""
    into: dict[int, list[int]] = {}
    for number, arc in enumerate(graph.arcs):
        into.setdefault(arc.target, []).append(number)
    return [
        (number, other)
        for number, arc in enumerate(graph.arcs)
        for other in into[arc.source]
        if arc.source in into
    ]
