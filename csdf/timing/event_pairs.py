"""Which firings of a channel's ends depend on each other, and at which lead.

The constraints of one channel in an event graph (`csdf.timing.event_graph`), without times and
periods. Many channels of a graph are alike, and most are small, so those are worked out together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from csdf.model.lowered import Arc
from csdf.model.whole_numbers import SAFE, Integers, joined

SMALL = 64
"""Pairs of firings of one channel up to which it is looked at together with others like it."""

MATRIX = 4_000_000
"""Candidate pairs of firings of one channel that are looked at together."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Of a channel: which producing and consuming firings depend on each other, and α.

    α is in multiples of the grain, the greatest common divisor of what both ends move in one
    repetition: any multiple of it is the lead of some repetition of the one over some repetition of
    the other.
    """

    producing: npt.NDArray[np.int64]
    consuming: npt.NDArray[np.int64]
    leads: Integers


class PairsOfAll:
    """The pairs of all channels for one choice of cycles after another.

    Those of a channel are worked out anew only where the cycles of its ends changed.
    """

    def __init__(self, arcs: Sequence[Arc]) -> None:
        self._arcs = arcs
        self._totals = [(sum(arc.production), sum(arc.consumption)) for arc in arcs]
        self._known: dict[int, tuple[tuple[int, int], Pairs]] = {}

    def at(self, cycles: Sequence[int]) -> list[Pairs]:
        """Of every arc, for `cycles[a]` cycles of actor a's phases."""
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
        """About how many pairs of firings `at` would look at."""
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


def _pairs(arc: Arc, source_cycles: int, target_cycles: int) -> Pairs:
    """Those of one channel."""
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
    return Pairs(
        producing[joined([i for i, _, _ in found]).astype(np.int64)],
        consuming[joined([j for _, j, _ in found]).astype(np.int64)],
        joined([lead for _, _, lead in found]),
    )


def _pairs_of_alike(arcs: Sequence[Arc]) -> list[Pairs]:
    """Those of channels between single cycles of as many phases each, all at once.

    Arrays have one row per channel, then one per consuming and one per producing firing.
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
    return [Pairs(*each) for each in zip(*parts, strict=True)]


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
