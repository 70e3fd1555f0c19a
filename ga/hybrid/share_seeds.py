"""Initial states of the hybrid search: runs of grains and split necklaces.

Both deal the grains of `ga.hybrid.shares` out in topological order.

**Runs** give each device consecutive grains, as much as is fair: the least traffic. If each device
is to have its share of work and of bytes at once, runs do not suffice, as work is at a network's
front and weights are at its end. But two cuts per device do, if the grains are thought of as beads
of two colours on a closed necklace: there is always an arc with the n-th part of both, and when it
is cut out and the ends are tied, one with the (n − 1)-th part of what remains.

Source of the existence proof: C. H. Goldberg and D. B. West, "Bisection of circle colorings", SIAM
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
"""Random disturbances of what makes a good arc, one necklace each."""


def seeds(rng: np.random.Generator, rows: UnitRows, fair: Floats) -> States:
    """Return initial states; `fair` [devices] is how much memory each device may use, relative to
    others."""
    return np.array([*_runs(rows, fair), *(_necklace(rng, rows, fair, j) for j in JITTERS)])


def _loads(rows: UnitRows) -> tuple[Floats, Floats]:
    """Each unit's part of all work and of all bytes (Eq. 2), [units]."""
    work = rows.layer_s.mean(axis=1)
    beta = rows.own_bytes + rows.shared_bytes
    tiny = np.finfo(float).tiny
    return work / max(work.sum(), tiny), beta / max(beta.sum(), tiny)


def _fair(rows: UnitRows, fair: Floats) -> tuple[Floats, Floats]:
    """Each device's fair part of all work and of all bytes, [devices]."""
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
    """The beads, consecutive in a circle, whose two sums are nearest to `wanted`."""
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
    """The unit of each grain, in topological order."""
    return np.repeat(np.arange(len(rows.units)), rows.grains)


def _state(rows: UnitRows, beads: NDArray[np.intp], device: NDArray[np.intp]) -> States:
    """The state in which each grain is on its device, but for pinned units."""
    devices = rows.layer_s.shape[1]
    state = np.zeros((len(rows.units), devices), dtype=np.int16)
    np.add.at(state, (beads, np.minimum(device, devices - 1)), 1)
    for unit in np.flatnonzero(rows.pinned >= 0):
        state[unit] = 0
        state[unit, rows.pinned[unit]] = rows.grains[unit]
    return state
