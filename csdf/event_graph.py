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
the largest ratio of time to delay of any cycle (see `csdf.cycle_ratio`).

Actors start their firings in order, so j also waits for the start of j − 1, and a constraint that
j − 1 has already is left out.

Sources: B. Bodin, A. Munier-Kordon, B. Dupont de Dinechin, "Optimal and fast throughput evaluation
of CSDF", DAC 2016, for K between 1 and q; Bilsen et al., 1996, for K = q.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from csdf.lowered import Arc, Lowered

Integers = npt.NDArray[Any]
"""Whole numbers: int64 where they fit, else Python's own (dtype object)."""

SAFE = 2**62
"""What int64 can hold with room for one addition."""

MATRIX = 4_000_000
"""Candidate pairs of firings of one channel that are looked at together."""


@dataclass(frozen=True)
class EventGraph:
    """Nodes are firings: `first[a] + k` is the k-th of actor a.

    Edge e says S(target[e]) − S(source[e]) ≥ time[e] / time_unit − λ × delay[e] / delay_unit. `arc`
    is the number of the lowered arc that it comes from, −1 for the order of an actor's firings.
    """

    nodes: int
    first: Sequence[int]
    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    time: Integers
    delay: Integers
    arc: npt.NDArray[np.int64]
    time_unit: int
    delay_unit: int


def build(graph: Lowered, repetitions: Sequence[int], cycles: Sequence[int]) -> EventGraph:
    """The event graph for `cycles[a]` cycles of actor a's phases, which must divide its repetitions
    (`repetitions[a]`, in cycles of phases).
    """
    per_iteration = [q // k for q, k in zip(repetitions, cycles, strict=True)]
    delay_unit = math.lcm(*per_iteration)
    time_unit = math.lcm(*(time.denominator for times in graph.times for time in times))
    counts = [len(times) * k for times, k in zip(graph.times, cycles, strict=True)]
    first = [0, *np.cumsum(counts, dtype=np.int64).tolist()]
    durations = [
        np.tile(integers(int(time * time_unit) for time in times), k)
        for times, k in zip(graph.times, cycles, strict=True)
    ]
    sources, targets, times_, delays, arcs = [], [], [], [], []
    for number, arc in enumerate(graph.arcs):
        grain = math.lcm(per_iteration[arc.source], per_iteration[arc.target])
        i, j, grains = _pairs(arc, cycles[arc.source], cycles[arc.target])
        sources.append(i + first[arc.source])
        targets.append(j + first[arc.target])
        times_.append(durations[arc.source][i])
        delays.append(_times(grains, -(delay_unit // grain)))
        arcs.append(np.full(len(i), number))
    sequential = {arc.source for arc in graph.arcs if is_sequential(arc)}
    for actor, count in enumerate(counts):
        if actor not in sequential and count > 1:
            order = np.arange(count)
            sources.append(order + first[actor])
            targets.append((order + 1) % count + first[actor])
            times_.append(np.zeros(count, np.int64))
            delays.append(integers([0] * (count - 1) + [delay_unit // per_iteration[actor]]))
            arcs.append(np.full(count, -1))
    return EventGraph(
        first[-1],
        first[:-1],
        _joined(sources).astype(np.int64),
        _joined(targets).astype(np.int64),
        _joined(times_),
        _joined(delays),
        _joined(arcs).astype(np.int64),
        time_unit,
        delay_unit,
    )


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


def integers(values: Iterable[int]) -> Integers:
    """An array of whole numbers of any size."""
    listed = list(values)
    small = all(-SAFE < value < SAFE for value in listed)
    return np.array(listed, dtype=np.int64 if small else object)


def _pairs(
    arc: Arc, source_cycles: int, target_cycles: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Integers]:
    """Producing firings, consuming firings, and α, in multiples of the grain, of one channel.

    The grain is the greatest common divisor of what both ends move in one repetition: any multiple
    of it is the lead of some repetition of the one over some repetition of the other.
    """
    put, taken = source_cycles * sum(arc.production), target_cycles * sum(arc.consumption)
    grain = math.gcd(put, taken)
    small = 4 * max(put + taken, arc.tokens) < SAFE
    dtype = np.int64 if small else object
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
    return (
        producing[_joined([i for i, _, _ in found]).astype(np.int64)],
        consuming[_joined([j for _, j, _ in found]).astype(np.int64)],
        _joined([alpha for _, _, alpha in found]),
    )


def _at_lead(
    after: Integers, needed: Integers, lead: int, put: int, grain: int
) -> tuple[Integers, Integers, Integers]:
    """For each consumer the one producer it waits for when `lead` grains ahead, modulo `put`."""
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
    """For consumers `low` ≤ j < `high` every producer they can wait for, at the largest lead."""
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


def _times(values: Integers, factor: int) -> Integers:
    largest = max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0
    if largest * abs(factor) >= SAFE:
        values = values.astype(object)
    return values * factor


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
