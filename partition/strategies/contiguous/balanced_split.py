"""Algorithm 1 of Villarrubia et al. (2025): split an array so that the largest sum is least.

Their §6.1.3 then moves the cuts until every device has room for its run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    """Where to cut so that no run sums to more than `bound`, each run as long as it can be."""
    cuts = []
    held = 0
    for place, size in enumerate(sizes):
        held += size
        if held > bound:
            cuts.append(place)
            held = size
    return cuts


def refined(cuts: Sequence[int], levels: int, report: Report) -> tuple[list[int], int]:
    """Move `cuts` until `report` is 0 for every run; return them and the number of moves.

    From the first run to the last: a run that is too large gives its last level to the next one,
    until it fits. If then the last is too large, the same from the last to the first: a run gives
    its first level to the one before. Runs may become empty. Run i is that of device i.
    """
    ends = [0, *cuts, levels]
    moves = 0
    for run in range(len(ends) - 2):
        while ends[run + 1] > ends[run] and report(run, ends[run], ends[run + 1]) > 0:
            ends[run + 1] -= 1
            moves += 1
    for run in range(len(ends) - 2, 0, -1):
        while ends[run] < ends[run + 1] and report(run, ends[run], ends[run + 1]) > 0:
            ends[run] += 1
            moves += 1
    return ends[1:-1], moves
