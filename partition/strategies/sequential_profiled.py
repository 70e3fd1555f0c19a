"""Every possible cut by depth, the best one taken (SEGM_PROF of Villarrubia et al. 2025, §5.3).

d depths into s segments, none empty, are C(d − 1, s − 1) partitions, times the orders of unlike
devices. Each is priced by the problem's objective (`partition.strategies.chosen`) from measured
seconds of layers if the problem has them, else from estimates; the explanation says which. Up to
`AFFORDABLE` stages priced in all, every partition is tried, and with fewer segments than devices as
well. Beyond that (ResNet101 in 6 segments has more than 3·10^9) the best cut by depth is found by
dynamic programming instead, whose one difference is that it adds up what each stage costs by
itself; the explanation says that too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.chosen import choose
from partition.strategies.depth import DepthOrder, by_depth
from partition.strategies.segments import Segments, segments
from partition.strategies.sequential import best_contiguous, no_cut_respects
from partition.strategies.stage_search import (
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
        most = min(len(problem.devices), deep.levels)
        counts = {
            stages: count_cuts(deep.levels, stages)
            * sum(1 for _ in device_orders(priced.kinds, stages, again=False))
            for stages in range(1, most + 1)
        }
        work = sum(stages * count for stages, count in counts.items())
        partitions = sum(counts.values())
        if work <= self._affordable:
            population = self._every(problem, deep, priced, counts)
            way = f"best of all {partitions} cuts by depth"
        else:
            numbers, _ = best_contiguous(problem, priced)
            population = deep.numbers(numbers)[None]
            way = (
                f"best cut by depth, by dynamic programming ({partitions:.1e} are too many to try "
                "them all)"
            )
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
