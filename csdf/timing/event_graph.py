"""Build the event graph of a graph: which firing waits for which, as constraints on start times.

Firing j of an actor that consumes tokens up to the x-th ever put into a channel must wait for the
end of the firing i that produces the x-th. Since schedules repeat themselves, it is enough to look
at K cycles of phases of each actor, repeated for ever with period λ × K / q, where q is the actor's
repetition count and λ the period of an iteration. A channel with W tokens per iteration then gives

    S(j) − S(i) ≥ time(i) − λ × delay,   delay = −α / W

for all firings i and j of which some repetitions depend on each other. S is the start of the first
repetition, and α is the largest number of tokens by which the repetition of i can then lie ahead of
that of j. With K = q every j depends on one i per channel and delays are whole iterations: the
usual expansion of a CSDF graph into its firings. With K = 1 the event graph is as small as the CSDF
graph itself, and λ is that of the best strictly periodic schedule. The smallest feasible λ is the
largest ratio of time to delay of any cycle (see `csdf.timing.cycle_ratio`).

Actors start their firings in order, so j also waits for the start of j − 1, and a constraint that
j − 1 has already is left out. Many channels of a graph are alike, and most are small, so the
constraints of those are computed together, in one array operation.

Sources: B. Bodin, A. Munier-Kordon, B. Dupont de Dinechin, "Optimal and fast throughput evaluation
of CSDF", DAC 2016, for K between 1 and q; Bilsen et al., 1996, for K = q.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from csdf.model.lowered import (
    SAFE,
    Arc,
    Indices,
    Integers,
    Lowered,
    common_denominator,
    integers,
    joined,
    products,
)

SMALL = 64
"""Pairs of firings up to which a channel is treated together with others like it."""

MATRIX = 4_000_000
"""Candidate pairs of firings of one channel in one array."""


@dataclass(frozen=True, slots=True)
class FiringPairs:
    """The pairs of producing and consuming firings of a channel that depend on each other.

    `leads` are the α, in multiples of the grain, which is the greatest common divisor of what both
    ends move in one repetition: each multiple is the lead of some repetition of the one over some
    repetition of the other.
    """

    producing: npt.NDArray[np.int64]
    consuming: npt.NDArray[np.int64]
    leads: Integers


class FiringPairsCache:
    """The firing pairs of all arcs, for one choice of cycles after another.

    The pairs of an arc are computed again only if the cycles of its ends have changed.
    """

    def __init__(self, arcs: Sequence[Arc]) -> None:
        self._arcs = arcs
        self._totals = [(sum(arc.production), sum(arc.consumption)) for arc in arcs]
        self._known: dict[int, tuple[tuple[int, int], FiringPairs]] = {}

    def at(self, cycles: Sequence[int]) -> list[FiringPairs]:
        """Return the pairs of each arc for `cycles[a]` cycles of actor a's phases."""
        alike: dict[tuple[int, int], list[int]] = {}
        for number, arc in enumerate(self._arcs):
            ends = cycles[arc.source], cycles[arc.target]
            if number in self._known and self._known[number][0] == ends:
                continue
            phases = len(arc.production), len(arc.consumption)
            if ends == (1, 1) and phases[0] * phases[1] <= SMALL and _is_small(arc, *ends):
                alike.setdefault(phases, []).append(number)
            else:
                self._known[number] = ends, _pairs(arc, *ends)
        for numbers in alike.values():
            found = _pairs_of_alike([self._arcs[number] for number in numbers])
            for number, pairs in zip(numbers, found, strict=True):
                self._known[number] = (1, 1), pairs
        return [self._known[number][1] for number in range(len(self._arcs))]

    def work(self, cycles: Sequence[int]) -> int:
        """Estimate how many pairs of firings `at` would consider."""
        total = 0
        for arc, (put, taken) in zip(self._arcs, self._totals, strict=True):
            k = cycles[arc.source]
            leads = k * put // math.gcd(k * put, cycles[arc.target] * taken)
            waiting = cycles[arc.target] * len(arc.consumption)
            total += waiting * min(leads, k * len(arc.production))
        return total


def _is_small(arc: Arc, source_cycles: int, target_cycles: int) -> bool:
    put, taken = source_cycles * sum(arc.production), target_cycles * sum(arc.consumption)
    return 4 * max(put + taken, abs(arc.tokens)) < SAFE


def _pairs(arc: Arc, source_cycles: int, target_cycles: int) -> FiringPairs:
    """Return the pairs of one arc."""
    put, taken = source_cycles * sum(arc.production), target_cycles * sum(arc.consumption)
    grain = math.gcd(put, taken)
    dtype = np.int64 if _is_small(arc, source_cycles, target_cycles) else object
    production = np.tile(np.array(arc.production, dtype=dtype), source_cycles)
    consumption = np.tile(np.array(arc.consumption, dtype=dtype), target_cycles)
    producing, consuming = np.flatnonzero(production), np.flatnonzero(consumption)
    after = np.cumsum(production, dtype=dtype)[producing]
    needed = np.cumsum(consumption, dtype=dtype)[consuming] - arc.tokens
    leads = put // grain
    if leads <= max(1, len(producing) // 8):
        found = [_at_lead(after, needed, lead, put, grain) for lead in range(leads)]
    else:
        rows = max(1, MATRIX // len(producing))
        before = after - production[producing]
        found = [
            _all_leads(before, after, needed, low, min(low + rows, len(needed)), grain)
            for low in range(0, len(needed), rows)
        ]
    return FiringPairs(
        producing[joined([i for i, _, _ in found]).astype(np.int64)],
        consuming[joined([j for _, j, _ in found]).astype(np.int64)],
        joined([lead for _, _, lead in found]),
    )


def _pairs_of_alike(arcs: Sequence[Arc]) -> list[FiringPairs]:
    """Return the pairs of arcs whose ends have one cycle and equal numbers of phases, by arc.

    Arrays have the axes (arc, consuming firing, producing firing).
    """
    production = np.array([arc.production for arc in arcs], dtype=np.int64)
    consumption = np.array([arc.consumption for arc in arcs], dtype=np.int64)
    grain = np.gcd(production.sum(axis=1), consumption.sum(axis=1))[:, None, None]
    tokens = np.array([arc.tokens for arc in arcs], dtype=np.int64)
    after = np.cumsum(production, axis=1)[:, None, :]
    needed = (np.cumsum(consumption, axis=1) - tokens[:, None])[:, :, None]
    largest = (needed - (after - production[:, None, :]) - 1) // grain
    smallest = -((after - needed) // grain)
    valid = (production > 0)[:, None, :] & (consumption > 0)[:, :, None] & (largest >= smallest)
    new = valid.copy()
    new[:, 1:] &= ~(valid[:, :-1] & (largest[:, 1:] == largest[:, :-1]))
    number, j, i = np.nonzero(new)
    leads = largest[number, j, i]
    ends = np.cumsum(np.bincount(number, minlength=len(arcs)))[:-1]
    parts = (np.split(each, ends) for each in (i, j, leads))
    return [FiringPairs(*each) for each in zip(*parts, strict=True)]


def _at_lead(
    after: Integers, needed: Integers, lead: int, put: int, grain: int
) -> tuple[Integers, Integers, Integers]:
    """Return for each consumer the producer for which it waits at `lead` grains modulo `put`."""
    token = needed + lead * grain
    ahead = (token - 1) // put
    i = np.searchsorted(after, token - ahead * put, side="left")
    changes = np.ones(len(needed), dtype=bool)
    changes[1:] = (i[1:] != i[:-1]) | (ahead[1:] != ahead[:-1])
    j = np.flatnonzero(changes)
    return i[j], j, ahead[j] * (put // grain) - lead


def _all_leads(
    before: Integers, after: Integers, needed: Integers, low: int, high: int, grain: int
) -> tuple[Integers, Integers, Integers]:
    """Return for consumers `low` ≤ j < `high` all producers, each at the largest lead."""
    previous = max(low - 1, 0)
    rows = needed[previous:high, None]
    largest = (rows - before[None, :] - 1) // grain
    smallest = -((after[None, :] - rows) // grain)
    valid = largest >= smallest
    new = valid.copy()
    new[1:] &= ~(valid[:-1] & (largest[1:] == largest[:-1]))
    if previous < low:
        new[0] = False
    j, i = np.nonzero(new)
    return i, j + previous, largest[j, i]


@dataclass(frozen=True)
class EventGraph:
    """An event graph, whose nodes are firings: `first[a] + k` is the k-th of actor a.

    Edge e means S(target[e]) − S(source[e]) ≥ time[e] / time_unit − λ × delay[e] / delay_unit.
    `arc` is the number of the lowered arc that it comes from, −1 for the order of an actor's
    firings.
    """

    nodes: int
    first: Sequence[int]
    source: Indices
    target: Indices
    time: Integers
    delay: Integers
    arc: Indices
    time_unit: int
    delay_unit: int

    def firings(self, actor: int) -> range:
        """Return the nodes that are firings of the actor with this number."""
        end = self.first[actor + 1] if actor + 1 < len(self.first) else self.nodes
        return range(self.first[actor], end)

    def actors(self, nodes: Indices) -> Indices:
        """Return the actors of which `nodes` are firings."""
        return np.searchsorted(np.array(self.first), nodes, side="right") - 1


def build(graph: Lowered, repetitions: Sequence[int], cycles: Sequence[int]) -> EventGraph:
    """Return the event graph for `cycles[a]` cycles of actor a's phases.

    They must divide `repetitions[a]`, the cycles of phases of an iteration.
    """
    return Builder(graph, repetitions).build(cycles)


class Builder:
    """The event graphs of one graph, for one choice of cycles after another."""

    def __init__(self, graph: Lowered, repetitions: Sequence[int]) -> None:
        self._graph, self._repetitions = graph, repetitions
        self._time_unit = time_unit(graph)
        self._times = [integers(scaled(times, self._time_unit)) for times in graph.times]
        sequential = sequential_actors(graph)
        self._unordered = [a for a in range(len(graph.names)) if a not in sequential]
        self._pairs = FiringPairsCache(graph.arcs)

    def build(self, cycles: Sequence[int]) -> EventGraph:
        """Return what the function `build` does."""
        per_iteration = [q // k for q, k in zip(self._repetitions, cycles, strict=True)]
        delay_unit = math.lcm(*per_iteration)
        counts = [len(times) * k for times, k in zip(self._times, cycles, strict=True)]
        first = [0, *itertools.accumulate(counts)]
        durations = joined(
            [
                np.tile(times, k) if k > 1 else times
                for times, k in zip(self._times, cycles, strict=True)
            ]
        )
        pairs = self._pairs.at(cycles)
        steps = [
            -(delay_unit // math.lcm(per_iteration[arc.source], per_iteration[arc.target]))
            for arc in self._graph.arcs
        ]
        sizes = [len(each.leads) for each in pairs]
        ends = (arc.source for arc in self._graph.arcs), (arc.target for arc in self._graph.arcs)
        low = [np.repeat([first[actor] for actor in actors], sizes) for actors in ends]
        source = low[0] + joined([each.producing for each in pairs])
        target = low[1] + joined([each.consuming for each in pairs])
        ordered = self._order(counts, first)
        turns = [delay_unit // per_iteration[actor] for actor, _, _ in ordered]
        return EventGraph(
            first[-1],
            first[:-1],
            np.concatenate([source, *(source for _, source, _ in ordered)]).astype(np.int64),
            np.concatenate([target, *(target for _, _, target in ordered)]).astype(np.int64),
            joined(
                [durations[source.astype(np.int64)]]
                + [np.zeros(len(source), np.int64) for _, source, _ in ordered]
            ),
            joined(
                [products([each.leads for each in pairs], steps)]
                + [
                    integers([0] * (len(source) - 1) + [turn])
                    for (_, source, _), turn in zip(ordered, turns, strict=True)
                ]
            ),
            np.concatenate(
                [np.repeat(np.arange(len(pairs)), sizes)]
                + [np.full(len(source), -1) for _, source, _ in ordered]
            ).astype(np.int64),
            self._time_unit,
            delay_unit,
        )

    def work(self, cycles: Sequence[int]) -> int:
        """Estimate how many firings and pairs of firings `build` would consider."""
        firings = sum(len(times) * k for times, k in zip(self._times, cycles, strict=True))
        return firings + self._pairs.work(cycles)

    def _order(
        self, counts: Sequence[int], first: Sequence[int]
    ) -> list[tuple[int, Indices, Indices]]:
        """Return (actor, sources, targets) of the edges that keep firings in order."""
        found = []
        for actor in self._unordered:
            if counts[actor] > 1:
                order = np.arange(first[actor], first[actor] + counts[actor])
                found.append((actor, order, np.roll(order, -1)))
        return found


def sequential_actors(graph: Lowered) -> set[int]:
    """Return the actors with a self-channel that keeps their firings from overlapping."""
    return {arc.source for arc in graph.arcs if is_sequential(arc)}


def is_sequential(arc: Arc) -> bool:
    """Return whether `arc` is a self-channel that keeps its actor's firings from overlapping."""
    if arc.source != arc.target or not all(arc.consumption):
        return False
    taken, put = arc.consumption[0], 0
    for j in range(1, len(arc.production) + 1):
        # Firing j must need a token of firing j − 1, which is one beyond those of the others.
        taken += arc.consumption[j % len(arc.consumption)]
        put += arc.production[j - 2] if j > 1 else 0
        if taken - arc.tokens <= put:
            return False
    return True


def time_unit(graph: Lowered) -> int:
    """Return the least number that makes all execution times integers when it multiplies them."""
    return common_denominator(graph.times)


def scaled(times: Sequence[Fraction], unit: int) -> list[int]:
    """Return `times` × `unit`, which must be integers."""
    known = {id(time): int(time * unit) for time in {id(t): t for t in times}.values()}
    return [known[id(time)] for time in times]
