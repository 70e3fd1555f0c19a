"""Balancing of weights by exchanging layers between pairs of devices (subset sums).

Two devices' layers are divided best by finding all sums that their sizes can make (the subset sum
problem, by dynamic programming on the bits of one long integer). Doing so with pair after pair,
until no pair helps the heaviest device, often ends at the mean, rounded up, which nothing can beat.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_ITEMS = 48
"""Of two devices' layers, only so many of the largest are shared anew."""


def rebalanced(
    sizes: Sequence[int],
    rooms: Sequence[int],
    numbers: NDArray[np.intp],
    is_free: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Return `numbers` [items], the device of each item, changed so that max load ÷ room is small.

    Only items with `is_free` [items] move. Sizes are whole numbers ≥ 0, `rooms` [devices] > 0.
    """
    best = numbers.copy()
    given, room = np.array(sizes, dtype=np.int64), np.array(rooms, dtype=np.int64)
    load = np.bincount(best, given, len(room)).astype(np.int64)
    improved = True
    while improved:
        improved = False
        heaviest = int((load / room).argmax())
        for other in np.argsort(load / room, kind="stable").tolist():
            if other == heaviest:
                continue
            movable = np.flatnonzero(is_free & (given > 0) & np.isin(best, (heaviest, other)))
            movable = movable[np.argsort(-given[movable], kind="stable")][:MOST_ITEMS]
            own = movable[best[movable] == heaviest]
            fixed = int(load[heaviest] - given[own].sum())
            both = int(load[heaviest] + load[other])
            target = both * int(room[heaviest]) // int(room[heaviest] + room[other])
            chosen = _subset(given[movable].tolist(), target - fixed)
            taken = int(given[movable[chosen]].sum())
            after = np.array([fixed + taken, both - fixed - taken])
            before = load[heaviest] / room[heaviest]
            if (after / room[[heaviest, other]]).max() < before:
                best[movable] = other
                best[movable[chosen]] = heaviest
                load[[heaviest, other]] = after
                improved = True
                break
    return best


def _subset(sizes: Sequence[int], target: int) -> list[int]:
    """Return the indices of sizes whose sum is closest to `target`."""
    reachable = [1]
    for size in sizes:
        reachable.append(reachable[-1] | reachable[-1] << size)
    target = min(max(target, 0), sum(sizes))
    below = (reachable[-1] & ((1 << target + 1) - 1)).bit_length() - 1
    above_bits = reachable[-1] >> target
    above = target + (above_bits & -above_bits).bit_length() - 1 if above_bits else below
    left = below if target - below <= above - target else above
    chosen = []
    for index in range(len(sizes) - 1, -1, -1):
        if not reachable[index] >> left & 1:
            chosen.append(index)
            left -= sizes[index]
    return chosen
