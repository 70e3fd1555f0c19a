"""Contiguous segments in topological order: the shortest period that cuts alone can give.

Two dynamic programs over the segments (`partition.strategies.segments`): the first finds the
shortest possible period, the second, among all cuts that come within `TOLERANCE` of it, those that
move the fewest bytes. The order of unlike devices is chosen as well. A device may stay empty.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.segments import Segments, best_cuts, segments

TOLERANCE = 0.01
"""How much longer than the shortest a period may be for the sake of fewer bytes."""


class Sequential:
    """Each device computes a run of consecutive layers."""

    name = "sequential"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no contiguous cut respects.

        Where no cut fits the devices' memory, the one whose fullest device is least over its limit.
        """
        numbers, fits = contiguous_cut(problem)
        used = len(set(numbers.tolist()))
        problem.on_progress(SearchProgress(1, 1, f"{used} segments"))
        fit = "" if fits else "; no contiguous cut was found to fit every device's memory"
        return Solution(
            problem.assignment(numbers),
            f"contiguous cuts into {used} segments, shortest period by dynamic programming, "
            f"then fewest bytes within {TOLERANCE:.0%} of it{fit}",
        )


def contiguous_cut(problem: Problem, tolerance: float = TOLERANCE) -> tuple[NDArray[np.intp], bool]:
    """A device number per layer, and whether every device's memory is expected to suffice.

    Raises `PartitionError` for pins that no contiguous cut respects.
    """
    priced = segments(problem)
    fitting = priced.fitting()
    fastest = best_cuts(priced.kinds, np.where(fitting, priced.seconds, np.inf), total=False)
    if fastest is None:
        return _least_overfull(problem, priced), False
    quick = fitting & (priced.seconds <= fastest[0] * (1 + tolerance))
    leanest = best_cuts(priced.kinds, np.where(quick, priced.received_bytes, np.inf), total=True)
    return (fastest if leanest is None else leanest)[1], True


def _least_overfull(problem: Problem, priced: Segments) -> NDArray[np.intp]:
    values = np.where(priced.allowed, priced.memory_share, np.inf)
    found = best_cuts(priced.kinds, values, total=False)
    if found is None:
        pinned = ", ".join(f"{layer!r} to {device!r}" for layer, device in problem.pins.items())
        raise PartitionError(
            f"no contiguous cut respects these pins: {pinned}; pin each device's layers to one "
            "run of the topological order, or choose strategy 'vertical'"
        )
    return found[1]
