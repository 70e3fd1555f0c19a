"""Equal numbers of layers in every segment (SEGM_COMP of Villarrubia et al. 2025, §5.2).

What they found the Edge TPU's compiler to do: of L layers in topological order each of n devices,
in the user's order, gets L // n, and the last L mod n devices get one more. Weights and work play
no part, and the objective is not looked at. Where pins or memory limits forbid that, the cut whose
numbers of layers differ least from it (in squares), in any order of the devices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.contiguous.best_cuts import best_cuts
from partition.strategies.contiguous.segments import Segments, segments
from partition.strategies.contiguous.sequential import least_overfull


class SequentialCount:
    """See the module's docstring."""

    name = "sequential-count"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no contiguous cut respects.

        Where no cut fits the devices' memory, the one whose fullest device is least over its limit.
        """
        priced = segments(problem)
        sizes = equal_counts(len(problem.network.layers), len(problem.devices))
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        note = ""
        if not _is_possible(problem, priced, sizes):
            nearest = _nearest(priced, len(problem.devices))
            numbers = least_overfull(problem, priced) if nearest is None else nearest
            note = ", as nearly as pins and memory limits allow"
            if nearest is None:
                note = "; but no contiguous cut was found to fit every device's memory"
        counts = np.bincount(numbers, minlength=len(problem.devices))
        shown = "-".join(str(count) for count in counts)
        problem.on_progress(SearchProgress(1, 1, shown))
        ignored = "" if problem.objective == "period" else f" ({problem.objective} plays no part)"
        return Solution(
            problem.assignment(numbers),
            f"equal numbers of layers in every segment{ignored}{note}: {shown}",
        )


def equal_counts(layers: int, devices: int) -> list[int]:
    """Return how many layers each device gets; the last ones get one more if there is a remainder.

    >>> equal_counts(7, 3)
    [2, 2, 3]
    """
    least, more = divmod(layers, devices)
    return [least + (number >= devices - more) for number in range(devices)]


def _is_possible(problem: Problem, priced: Segments, sizes: list[int]) -> bool:
    ends = np.concatenate([[0], np.cumsum(sizes)])
    fitting = priced.fitting()
    kind_of = {n: kind for kind, members in enumerate(priced.kinds) for n in members}
    return all(
        fitting[kind_of[number], ends[number], ends[number + 1]]
        for number in range(len(problem.devices))
    )


def _nearest(priced: Segments, devices: int) -> NDArray[np.intp] | None:
    places = np.arange(priced.weight_bytes.shape[0])
    even = (len(places) - 1) / devices
    values = (places[None, :] - places[:, None] - even) ** 2
    found = best_cuts(priced.kinds, np.where(priced.fitting(), values, np.inf), total=True)
    return None if found is None else found[1]
