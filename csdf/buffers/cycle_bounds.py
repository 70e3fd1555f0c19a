"""Lower bounds on the capacities along a cycle of channels, whatever the schedule.

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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import numpy as np

from csdf.buffers.conflicts import PeriodGoal
from csdf.model.lowered import Arc, Lowered
from csdf.model.whole_numbers import integers
from csdf.timing.cycle_ratio import PolicyIteration
from csdf.timing.event_graph import time_unit

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
