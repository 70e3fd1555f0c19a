"""Which firing waits for which: the constraints on start times, as a graph of firings.

Firing j of an actor that takes tokens up to the x-th ever put into a channel must wait for the end
of the one firing i that puts the x-th in. Since schedules repeat themselves, it is enough to look
at K cycles of phases of each actor, repeated for ever with period λ × K / q, where q is the actor's
repetition count and λ the period of an iteration. A channel with W tokens per iteration then gives

    S(j) − S(i) ≥ time(i) − λ × delay,   delay = −α / W

for all firings i and j of which some repetitions depend on each other; S is the start of the first
repetition, and α is the largest number of tokens by which the repetition of i can then lie ahead
of that of j. With K = q every j depends on one i per channel and delays are whole iterations: the
usual expansion of a CSDF graph into its firings. With K = 1 the event graph is as small as the
CSDF graph itself, and λ is that of the best strictly periodic schedule. The smallest feasible λ is
the largest ratio of time to delay of any cycle (see `csdf.timing.cycle_ratio`).

Actors start their firings in order, so j also waits for the start of j − 1, and a constraint that
j − 1 has already is left out.

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

from csdf.model.lowered import Arc, Lowered, common_denominator
from csdf.model.whole_numbers import Integers, integers, joined, products
from csdf.timing.event_pairs import PairsOfAll

Indices = npt.NDArray[np.int64]
"""Numbers of nodes, edges or actors."""


@dataclass(frozen=True)
class EventGraph:
    """Nodes are firings: `first[a] + k` is the k-th of actor a.

    Edge e says S(target[e]) − S(source[e]) ≥ time[e] / time_unit − λ × delay[e] / delay_unit. `arc`
    is the number of the lowered arc that it comes from, −1 for the order of an actor's firings.
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

    def actors(self, nodes: Indices) -> Indices:
        """The actors of which `nodes` are firings."""
        return np.searchsorted(np.array(self.first), nodes, side="right") - 1


def build(graph: Lowered, repetitions: Sequence[int], cycles: Sequence[int]) -> EventGraph:
    """The event graph for `cycles[a]` cycles of actor a's phases, which must divide its repetitions
    (`repetitions[a]`, in cycles of phases).
    """
    return Builder(graph, repetitions).build(cycles)


class Builder:
    """Event graphs of one graph for one choice of cycles after another.

    The constraints of a channel are worked out anew only where the cycles of its ends changed.
    """

    def __init__(self, graph: Lowered, repetitions: Sequence[int]) -> None:
        self._graph, self._repetitions = graph, repetitions
        self._time_unit = time_unit(graph)
        self._times = [integers(scaled(times, self._time_unit)) for times in graph.times]
        sequential = {arc.source for arc in graph.arcs if is_sequential(arc)}
        self._unordered = [a for a in range(len(graph.names)) if a not in sequential]
        self._pairs = PairsOfAll(graph.arcs)

    def build(self, cycles: Sequence[int]) -> EventGraph:
        """As the function `build`."""
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
        """About how many firings and pairs of firings `build` would look at."""
        firings = sum(len(times) * k for times, k in zip(self._times, cycles, strict=True))
        return firings + self._pairs.work(cycles)

    def _order(
        self, counts: Sequence[int], first: Sequence[int]
    ) -> list[tuple[int, Indices, Indices]]:
        """(actor, sources, targets): its firings start one after the other."""
        found = []
        for actor in self._unordered:
            if counts[actor] > 1:
                order = np.arange(first[actor], first[actor] + counts[actor])
                found.append((actor, order, np.roll(order, -1)))
        return found


def is_sequential(arc: Arc) -> bool:
    """Whether `arc` is a self-channel that lets its actor start no firing before the last ended."""
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
    """What makes all times whole numbers when they are multiplied by it."""
    return common_denominator(graph.times)


def scaled(times: Sequence[Fraction], unit: int) -> list[int]:
    """`times` × `unit`, which are whole numbers."""
    known = {id(time): int(time * unit) for time in {id(t): t for t in times}.values()}
    return [known[id(time)] for time in times]
