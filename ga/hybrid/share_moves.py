"""Random moves of the hybrid search: some grains of a unit go to another device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ga.hybrid.shares import States
from ga.hybrid.unit_rows import UnitRows

TO_NEIGHBOURS = 0.5
"""How often a move goes to a device that has some of a neighbouring unit: it saves traffic."""

TO_HOLDERS = 0.15
"""How often it goes to a device that has some of the same unit: it makes fewer or fairer parts."""

RUNS = 0.4
"""How often a run of units moves as a whole, instead of grains of one."""

EXCHANGES = 0.5
"""How often something of the receiving device goes back, which keeps the balance."""

_LONGEST_RUN = 6

_NEIGHBOURS = 8
"""How many neighbours of a unit are considered."""


class Moves:
    """Moves for one problem's units; pinned units stay."""

    def __init__(self, rows: UnitRows) -> None:
        self._free = np.flatnonzero(rows.pinned < 0)
        self._is_free = rows.pinned < 0
        self._neighbours = _neighbours(rows)

    def __call__(self, rng: np.random.Generator, states: States) -> States:
        """A new state of each; the states themselves are left alone."""
        moved = states.copy()
        individuals, units, devices = states.shape
        if not len(self._free) or devices == 1:
            return moved
        rows = np.arange(individuals)
        unit = self._free[rng.integers(0, len(self._free), individuals)]
        giver = _one_of(rng, states[rows, unit] > 0)
        taker = self._takers(rng, states, unit)
        is_run = np.asarray(rng.random(individuals) < RUNS)
        length = np.where(is_run, np.minimum(1 + rng.geometric(0.4, individuals), _LONGEST_RUN), 1)
        direction = np.where(rng.random(individuals) < 0.5, 1, -1)
        for step in range(int(length.max())):
            place = unit + direction * step
            inside = (step < length) & (place >= 0) & (place < units)
            chosen = rows[inside & self._is_free[place % units]]
            _shift(rng, moved, chosen, place, giver, taker, whole=is_run)
        back = _one_of(rng, (states[rows, :, taker] > 0) & self._is_free)
        returns = (rng.random(individuals) < EXCHANGES) & (states[rows, back, taker] > 0)
        returns &= self._is_free[back]
        _shift(rng, moved, rows[returns], back, taker, giver, whole=np.zeros(individuals, bool))
        return moved

    def _takers(
        self, rng: np.random.Generator, states: States, unit: NDArray[np.intp]
    ) -> NDArray[np.intp]:
        individuals, _, devices = states.shape
        rows = np.arange(individuals)
        near = self._neighbours[unit, rng.integers(0, _NEIGHBOURS, individuals)]
        neighbour = _one_of(rng, states[rows, near] > 0)
        holder = _one_of(rng, states[rows, unit] > 0)
        anyone = rng.integers(0, devices, individuals)
        kind = rng.random(individuals)
        others = np.where(kind < TO_NEIGHBOURS + TO_HOLDERS, holder, anyone)
        return np.where(kind < TO_NEIGHBOURS, neighbour, others)


def _shift(
    rng: np.random.Generator,
    states: States,
    rows: NDArray[np.intp],
    unit: NDArray[np.intp],
    giver: NDArray[np.intp],
    taker: NDArray[np.intp],
    whole: NDArray[np.bool_],
) -> None:
    """In each of `rows`, grains of a unit go from one device to another: all, or (half of the time,
    unless `whole`) a random number."""
    held = states[rows, unit[rows], giver[rows]]
    some = np.ceil(rng.random(len(rows)) * held).astype(held.dtype)
    amount = np.where(whole[rows] | (rng.random(len(rows)) < 0.5), held, some)
    states[rows, unit[rows], giver[rows]] -= amount
    states[rows, unit[rows], taker[rows]] += amount


def _one_of(rng: np.random.Generator, candidates: NDArray[np.bool_]) -> NDArray[np.intp]:
    """For each row one of its true columns at random; any column if there is none."""
    return np.asarray((rng.random(candidates.shape) * candidates).argmax(axis=1))


def _neighbours(rows: UnitRows) -> NDArray[np.intp]:
    """For each unit some that it sends to or receives from, [units, _NEIGHBOURS]; else itself."""
    tensors = rows.tensors
    found: list[set[int]] = [set() for _ in rows.units]
    for tensor, reader in zip(tensors.of_reader, tensors.readers, strict=True):
        source = int(tensors.source[tensor])
        if source >= 0:
            found[source].add(int(reader))
            found[reader].add(source)
    return np.array([_padded(sorted(each) or [unit]) for unit, each in enumerate(found)])


def _padded(numbers: Sequence[int]) -> list[int]:
    return [numbers[index % len(numbers)] for index in range(_NEIGHBOURS)]
