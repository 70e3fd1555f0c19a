"""Balancing of weights or work: longest processing time first, subset sums, and split arrays.

- `longest_first` assigns layers, or groups of them, in order of descending size, each to the device
  whose load, relative to its speed, is then least. On n equal devices the largest load is at most
  4/3 − 1/(3n) times the optimum (R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM
  Journal on Applied Mathematics, 1969).
- Exchanging layers between pairs of devices: the layers of two devices are divided best by finding
  all sums that their sizes can make (subset sums, by dynamic programming on the bits of one long
  integer). Pair after pair, this often ends at the mean, rounded up, which nothing can beat.
- Algorithm 1 of Villarrubia et al. (2025) splits an array of sizes into consecutive segments so
  that the largest sum is least.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_ITEMS = 48
"""The most layers of two devices, the largest ones, that are exchanged between them."""


def rebalanced(
    sizes: Sequence[int],
    rooms: Sequence[int],
    numbers: NDArray[np.intp],
    is_free: NDArray[np.bool_],
) -> NDArray[np.intp]:
    """Return `numbers` [items], the device of each item, changed so that the largest load ÷ room is
    small.

    Only items with `is_free` [items] move. Sizes are integers ≥ 0, `rooms` [devices] > 0.
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


Report = Callable[[int, int, int], int]
"""(device number, first level, level after the last) → bytes that the device has no room for."""


def balanced_split(sizes: Sequence[int], runs: int) -> tuple[int, list[int]]:
    """Return the least possible largest sum of at most `runs` runs of `sizes`, and the cuts.

    >>> balanced_split([7, 2, 5, 10, 8], 2)
    (18, [3])

    Binary search over the bound, with a greedy check: a run takes what still fits. A cut at i
    stands before `sizes[i]`. Takes O(len(sizes) × log(sum of sizes)) steps.
    """
    least, most = max(sizes), sum(sizes)
    while least < most:
        bound = (least + most) // 2
        if len(_greedy(sizes, bound)) < runs:
            most = bound
        else:
            least = bound + 1
    return least, _greedy(sizes, least)


def _greedy(sizes: Sequence[int], bound: int) -> list[int]:
    """Return cuts such that each run is as long as a sum of at most `bound` allows."""
    cuts = []
    held = 0
    for place, size in enumerate(sizes):
        held += size
        if held > bound:
            cuts.append(place)
            held = size
    return cuts


def refined(
    cuts: Sequence[int], sizes: Sequence[int], report: Report
) -> tuple[list[int], int, int]:
    """Move `cuts` until `report` is 0 for every run; return them, and how many levels they moved in
    how many steps.

    The first pass goes from the first run to the last: a run that is too large gives its last
    levels to the next run until it fits. If the last run is then too large, a second pass goes from
    the last run to the first: a run gives its first levels to the run before it. Runs may become
    empty. Run i is that of device i. A step moves as many levels as have the reported bytes by
    their `sizes`, so that a report, for which a compiler takes seconds, is not asked for after
    each level.
    """
    ends = [0, *cuts, len(sizes)]
    moves = steps = 0
    for run in range(len(ends) - 2):
        while ends[run + 1] > ends[run] and (over := report(run, ends[run], ends[run + 1])) > 0:
            own = sizes[ends[run] : ends[run + 1]]
            moved = _first_that_have(over, own[::-1])
            ends[run + 1] -= moved
            moves, steps = moves + moved, steps + 1
    for run in range(len(ends) - 2, 0, -1):
        while ends[run] < ends[run + 1] and (over := report(run, ends[run], ends[run + 1])) > 0:
            moved = _first_that_have(over, sizes[ends[run] : ends[run + 1]])
            ends[run] += moved
            moves, steps = moves + moved, steps + 1
    return ends[1:-1], moves, steps


def _first_that_have(size: int, sizes: Sequence[int]) -> int:
    """Return how many of the first `sizes` sum up to `size`; all if none do, at least one."""
    for count, total in enumerate(itertools.accumulate(sizes), start=1):
        if total >= size:
            return count
    return len(sizes)


def longest_first(
    rng: np.random.Generator,
    count: int,
    sizes: NDArray[np.float64],
    pinned: NDArray[np.integer],
    spread: float = 0.0,
) -> NDArray[np.int16]:
    """Return `count` assignments, [count, items]; the first by the sizes as they are.

    `sizes` [items, devices] is the cost of each item on each device. In all but the first
    assignment, the order is by sizes that are multiplied by random factors in 1 ± `spread`. Pinned
    items (−1: free) are assigned first."""
    items, devices = sizes.shape
    blur = rng.uniform(1 - spread, 1 + spread, (count, items))
    blur[0] = 1.0
    order = np.argsort(-sizes.mean(axis=1) * blur, axis=1, kind="stable")
    assigned = np.empty((count, items), dtype=np.int16)
    load = np.zeros((count, devices))
    for item in np.flatnonzero(pinned >= 0):
        assigned[:, item] = pinned[item]
        load[:, pinned[item]] += sizes[item, pinned[item]]
    rows = np.arange(count)
    for now in order.T:
        free = pinned[now] < 0
        best = (load + sizes[now]).argmin(axis=1)
        chosen = np.where(free, best, assigned[rows, now])
        assigned[rows, now] = chosen
        load[rows, chosen] += np.where(free, sizes[now, chosen], 0.0)
    return assigned
