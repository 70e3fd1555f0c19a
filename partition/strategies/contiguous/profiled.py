"""The best of all cuts by depth (SEGM_PROF of Villarrubia et al. 2025, §5.3).

d depths into s segments, none empty, are C(d − 1, s − 1) partitions, times the orders of unlike
devices. Each is priced by the problem's objective (`partition.strategies.chosen`) from measured
seconds of layers if the problem has them, else from estimates; the explanation says which. Up to
`AFFORDABLE` stages priced in all, every partition is tried, and with fewer segments than devices as
well. Beyond that (ResNet101 in 6 segments has more than 3·10^9) the best cut by depth is found by
dynamic programming instead, whose one difference is that it adds up what each stage costs by
itself; the explanation says that too.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.chosen import choose
from partition.strategies.contiguous.depth import DepthOrder, by_depth
from partition.strategies.contiguous.segments import Segments, segments
from partition.strategies.contiguous.sequential import best_contiguous, no_cut_respects
from partition.strategies.contiguous.stage_search import (
    Best,
    Stages,
    count_cuts,
    cut_vectors,
    device_orders,
)

AFFORDABLE = 20_000_000
"""Partitions × stages up to which every one is tried (a few seconds)."""


class SequentialProfiled:
    """See the module's docstring."""

    name = "sequential-profiled"

    def __init__(self, affordable: int = AFFORDABLE) -> None:
        self._affordable = affordable

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no cut by depth respects.

        Where no cut fits the devices' memory, the one that exceeds the limits least.
        """
        deep = by_depth(problem)
        priced = segments(deep.problem).at(deep.positions)
        counts = self._counts(deep.levels, priced.kinds)
        if counts is not None:
            population = self._every(problem, deep, priced, counts)
            way = f"best of all {sum(counts.values())} cuts by depth"
        else:
            numbers, _ = best_contiguous(problem, priced)
            population = deep.numbers(numbers)[None]
            way = "best cut by depth, by dynamic programming (there are too many to try them all)"
            problem.on_progress(SearchProgress(1, 1, "by dynamic programming"))
        if not len(population):
            raise no_cut_respects(problem)
        chosen = choose(problem, population)
        seconds = "estimated" if problem.layer_s is None else "measured"
        fit = "" if chosen.fits else "; none was found to fit every device's memory"
        return Solution(
            problem.assignment(chosen.numbers),
            f"{way}, by {problem.objective}, from {seconds} seconds of layers{fit}",
        )

    def _counts(self, levels: int, kinds: Sequence[Sequence[int]]) -> dict[int, int] | None:
        """Numbers of stages → partitions to try; None if that is more than is affordable."""
        found: dict[int, int] = {}
        left = self._affordable
        for stages in range(1, min(sum(map(len, kinds)), levels) + 1):
            each = stages * count_cuts(levels, stages)
            orders = device_orders(kinds, stages, again=False)
            number = sum(1 for _ in itertools.islice(orders, left // each + 1))
            left -= number * each
            if left < 0:
                return None
            found[stages] = number * count_cuts(levels, stages)
        return found

    def _every(
        self, problem: Problem, deep: DepthOrder, priced: Segments, counts: dict[int, int]
    ) -> NDArray[np.intp]:
        best = Best(Stages(problem, priced, deep.numbers))
        done, total = 0, sum(counts.values())
        for stages in counts:
            for order in device_orders(priced.kinds, stages, again=False):
                for cuts in cut_vectors(deep.levels, stages):
                    best.offer(order, cuts)
                    done += len(cuts)
                    problem.on_progress(SearchProgress(done, total, f"{stages} segments"))
        return best.assignments()
