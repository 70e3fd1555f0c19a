"""Random moves and initial states of the hybrid search.

A move gives some grains of a unit to another device. An initial state deals the grains of all units
(`ga.hybrid.shares`) out in topological order, in one of two ways:

- **Runs** give each device consecutive grains, its fair share of them. They send the fewest bytes.
- **Split necklaces** give each device its fair share of work and of bytes at once. Runs cannot,
  because work is at a network's front and weights are at its end. Think of the grains as beads of
  two colours on a closed necklace: there is always an arc with the n-th part of both, and when it
  is cut out and the ends are tied, one with the (n − 1)-th part of the rest, and so on.

Sources of the existence proof: C. H. Goldberg and D. B. West, "Bisection of circle colorings", SIAM
Journal on Algebraic and Discrete Methods, 1985; N. Alon, "Splitting necklaces", Advances in
Mathematics, 1987.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ga.hybrid.shares import States
from ga.hybrid.unit_rows import UnitRows
from partition.pricing.traffic import Floats

JITTERS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.2, 0.2, 0.2)
"""The random disturbances of the score of an arc, one for each necklace."""


def seeds(rng: np.random.Generator, rows: UnitRows, fair: Floats) -> States:
    """Return initial states; `fair` [devices] is the relative memory that each may use."""
    return np.array([*_runs(rows, fair), *(_necklace(rng, rows, fair, j) for j in JITTERS)])


def _loads(rows: UnitRows) -> tuple[Floats, Floats]:
    """Return each unit's part of all work and of all bytes (Eq. 2), [units]."""
    work = rows.layer_s.mean(axis=1)
    beta = rows.own_bytes + rows.shared_bytes
    tiny = np.finfo(float).tiny
    return work / max(work.sum(), tiny), beta / max(beta.sum(), tiny)


def _fair(rows: UnitRows, fair: Floats) -> tuple[Floats, Floats]:
    """Return each device's fair part of all work and of all bytes, [devices]."""
    speed = 1 / np.maximum(rows.layer_s.sum(axis=0), np.finfo(float).tiny)
    return speed / speed.sum(), fair / fair.sum()


def _runs(rows: UnitRows, fair: Floats) -> Sequence[States]:
    work, beta = _loads(rows)
    by_work, by_bytes = _fair(rows, fair)
    found = []
    for weight in (1.0, 0.5, 0.0):
        load = weight * work + (1 - weight) * beta
        edges = np.cumsum(weight * by_work + (1 - weight) * by_bytes)[:-1]
        beads = _beads(rows)
        middle = np.cumsum((load / rows.grains)[beads]) - (load / rows.grains)[beads] / 2
        found.append(_state(rows, beads, np.searchsorted(edges, middle)))
    return found


def _necklace(rng: np.random.Generator, rows: UnitRows, fair: Floats, jitter: float) -> States:
    work, beta = _loads(rows)
    by_work, by_bytes = _fair(rows, fair)
    beads = _beads(rows)
    colours = np.array([(work / rows.grains)[beads], (beta / rows.grains)[beads]])
    device = np.full(len(beads), len(by_work) - 1)
    left = np.arange(len(beads))
    for number in range(len(by_work) - 1):
        if not len(left):
            break
        wanted = np.array([by_work[number], by_bytes[number]])
        arc = left[_arc(rng, colours[:, left], wanted, jitter)]
        device[arc] = number
        left = np.setdiff1d(left, arc)
    return _state(rows, beads, device)


def _arc(
    rng: np.random.Generator, colours: Floats, wanted: Floats, jitter: float
) -> NDArray[np.intp]:
    """Return the beads, consecutive on a circle, whose two sums are nearest to `wanted`."""
    count = colours.shape[1]
    around = np.concatenate([colours, colours], axis=1)
    sums = np.concatenate([np.zeros((2, 1)), np.cumsum(around, axis=1)], axis=1)
    start = np.arange(count)[:, None]
    stop = start + np.arange(1, count + 1)[None, :]
    off = sum(
        np.abs((sums[c][stop] - sums[c][start]) / max(wanted[c], np.finfo(float).tiny) - 1)
        for c in (0, 1)
    )
    off = off + jitter * rng.random(off.shape)
    first, length = np.unravel_index(int(off.argmin()), off.shape)
    return np.asarray((first + np.arange(length + 1)) % count)


def _beads(rows: UnitRows) -> NDArray[np.intp]:
    """Return the unit of each grain, in topological order."""
    return np.repeat(np.arange(len(rows.units)), rows.grains)


def _state(rows: UnitRows, beads: NDArray[np.intp], device: NDArray[np.intp]) -> States:
    """Return the state in which each grain is on its device; pinned units stay on theirs."""
    devices = rows.layer_s.shape[1]
    state = np.zeros((len(rows.units), devices), dtype=np.int16)
    np.add.at(state, (beads, np.minimum(device, devices - 1)), 1)
    for unit in np.flatnonzero(rows.pinned >= 0):
        state[unit] = 0
        state[unit, rows.pinned[unit]] = rows.grains[unit]
    return state


TO_NEIGHBOURS = 0.5
"""The share of moves to a device that has some of a neighbouring unit, which saves traffic."""

TO_HOLDERS = 0.15
"""The share of moves to a device that has some of the unit: parts become fewer or fairer."""

RUNS = 0.4
"""The share of moves in which a run of units moves as a whole, instead of grains of one unit."""

EXCHANGES = 0.5
"""The share of moves in which something returns from the receiver, which keeps the balance."""

_LONGEST_RUN = 6

_NEIGHBOURS = 8
"""The number of neighbours of a unit that are considered."""


class Moves:
    """Random moves for one problem's units; pinned units stay."""

    def __init__(self, rows: UnitRows) -> None:
        self._free = np.flatnonzero(rows.pinned < 0)
        self._is_free = rows.pinned < 0
        self._neighbours = _neighbours(rows)

    def __call__(self, rng: np.random.Generator, states: States) -> States:
        """Return a new state made from each state; the states themselves do not change."""
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
    """In each of `rows`, move grains of a unit from one device to another.

    All grains move or, half of the time and unless `whole`, a random number of them.
    """
    held = states[rows, unit[rows], giver[rows]]
    some = np.ceil(rng.random(len(rows)) * held).astype(held.dtype)
    amount = np.where(whole[rows] | (rng.random(len(rows)) < 0.5), held, some)
    states[rows, unit[rows], giver[rows]] -= amount
    states[rows, unit[rows], taker[rows]] += amount


def _one_of(rng: np.random.Generator, candidates: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return for each row one of its true columns at random; any column if there is none."""
    return np.asarray((rng.random(candidates.shape) * candidates).argmax(axis=1))


def _neighbours(rows: UnitRows) -> NDArray[np.intp]:
    """Return for each unit some units that it sends to or receives from, [units, _NEIGHBOURS].

    A unit without such units is its own neighbour.
    """
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
