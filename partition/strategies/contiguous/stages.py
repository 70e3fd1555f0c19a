"""Pipelines of unlike devices (Velasco-Montero et al. 2023): `two-stage` and `k-stage`.

**two-stage** is their Algorithm 1, Two-Stage Network Partitioning: over every ordered pair of
devices and every cut point, one of them the end of the network, so that one device alone competes
as well. Their Algorithm 2, Dynamic Two-Stage Network Partitioning, moves the cut of a running
pipeline, layer by layer, towards shorter measured stage times. It is no strategy here:
`launcher.core.speeds` measures the stage times while frames stream (with a median in the place of
the moving average that α controls), and instead of a step to the next cut the strategy searches
anew (decision 019).

**k-stage** is their general search (§II-A.2): the best with one stage, then with two, and so on
while another stage gains more than `LEAST_GAIN`. A device may get several stages, CPU → GPU → CPU,
as long as all cuts and orders are affordable (`AFFORDABLE`); beyond that each device gets one at
most, and the best cuts come from dynamic programming.

The objective is one of theirs: **period**, the largest time of any device (Eq. 3); **energy**, the
sum of what the devices take (Eq. 4; waiting counts, at `Device.idle_w`); **latency**, the sum of
the stages' times (Eq. 5); or, ours, **memory**, the fullest device. Transfers are in a stage's time
and linear in bytes, as they measured them: `Device.wire_s_per_message` and `wire_s_per_byte`, which
`partition.pricing.transfer` fits to measurements. The best of the search are priced again by
`CostModel`.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.chosen import Chosen, choose
from partition.strategies.contiguous.best_cuts import affordable_units, best_cuts
from partition.strategies.contiguous.segments import segments
from partition.strategies.contiguous.sequential import least_overfull
from partition.strategies.contiguous.stage_search import (
    Best,
    Stages,
    count_cuts,
    cut_vectors,
    device_orders,
)
from partition.strategies.contiguous.thinning import expanded, thinned

AFFORDABLE = 5_000_000
"""Stages priced, cuts × orders × stages, up to which everything is tried for a number of stages."""

LEAST_GAIN = 0.001
"""The share of the objective that another stage must gain."""


class TwoStage:
    """See the module's docstring."""

    name = "two-stage"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that two stages cannot respect."""
        stages = Stages(problem, segments(problem), lambda numbers: numbers)
        best = Best(stages)
        for count in range(1, min(2, len(problem.devices), stages.units) + 1):
            _try_everything(stages, count, best, again=False)
        problem.on_progress(SearchProgress(1, 1, "every pair of devices"))
        found = best.assignments()
        if not len(found):
            raise PartitionError(
                "no two stages respect the pins: they name more than two devices, or interleave; "
                "remove pins, or choose strategy 'k-stage'"
            )
        return _solution(problem, choose(problem, found), "every cut for every pair of devices")


class KStage:
    """See the module's docstring."""

    name = "k-stage"

    def __init__(self, affordable: int = AFFORDABLE) -> None:
        self._affordable = affordable

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no stages respect.

        Where nothing fits the devices' memory, what exceeds the limits least.
        """
        stages = Stages(problem, segments(problem), lambda numbers: numbers)
        most = min(stages.units, len(problem.devices) + 1)
        best: Chosen | None = None
        tried = complete = 0
        for count in range(1, most + 1):
            found, everything = self._with(stages, count)
            tried, complete = count, count if everything else complete
            if found is not None and (best is None or _gains(found, best)):
                best = found
            elif best is not None and best.fits and found is not None:
                break
            shown = "none yet" if best is None else _shown(problem, best)
            problem.on_progress(SearchProgress(count, most, shown))
        if best is None:
            best = choose(problem, least_overfull(problem, stages.priced)[None])
        problem.on_progress(SearchProgress(most, most, _shown(problem, best)))
        way = f"every cut and order of devices for up to {complete} stages"
        if tried > complete:
            way += f", each device once for up to {tried}"
        return _solution(problem, best, way)

    def _with(self, stages: Stages, count: int) -> tuple[Chosen | None, bool]:
        """The best with `count` stages, and whether everything was tried for it."""
        affordable = self._affordable // (count * count_cuts(stages.units, count))
        orders = device_orders(stages.priced.kinds, count, again=True)
        everything = sum(1 for _ in itertools.islice(orders, affordable + 1)) <= affordable
        if everything:
            best = Best(stages)
            _try_everything(stages, count, best, again=True)
            found = best.assignments()
        else:
            found = _one_each(stages, count)
        return (choose(stages.problem, found) if len(found) else None), everything


def _try_everything(stages: Stages, count: int, best: Best, *, again: bool) -> None:
    for order in device_orders(stages.priced.kinds, count, again=again):
        for cuts in cut_vectors(stages.units, count):
            best.offer(order, cuts)


def _one_each(stages: Stages, count: int) -> NDArray[np.intp]:
    """The best cuts for at most `count` devices with a stage each: [0 or 1, layers]."""
    objective = stages.problem.objective
    priced, places = thinned(stages.priced)
    values = {
        "period": priced.seconds,
        "memory": priced.memory_share,
        "latency": priced.response_s,
        "energy": priced.joules,
    }[objective]
    values = np.where(priced.fitting(), values, np.inf)
    total = objective in ("latency", "energy")
    members, kinds = _candidates(priced.kinds, values, count)
    found = best_cuts(members, values[kinds], total=total, most=count)
    if found is None:
        return np.empty((0, stages.units), np.intp)
    return expanded(found[1], places)[None]


def _candidates(
    kinds: tuple[tuple[int, ...], ...], values: Floats, count: int
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Device numbers by kind, and the kinds: all, or if those are too many to try in every order,
    the `count` devices that would do best with half of the layers."""
    units = values.shape[1] - 1
    if units <= affordable_units([len(members) for members in kinds]):
        return list(kinds), list(range(len(kinds)))
    halves = np.minimum(values[:, 0, units // 2], values[:, units // 2, -1])
    chosen: dict[int, tuple[int, ...]] = {}
    for kind in np.argsort(halves, kind="stable").tolist():
        room = count - sum(len(members) for members in chosen.values())
        if room > 0:
            chosen[kind] = kinds[kind][:room]
    in_order = sorted(chosen)
    return [chosen[kind] for kind in in_order], in_order


def _gains(found: Chosen, best: Chosen) -> bool:
    if found.fits != best.fits:
        return found.fits
    return found.value < best.value * (1 - LEAST_GAIN)


def _shown(problem: Problem, chosen: Chosen) -> str:
    return f"{problem.objective} {chosen.value:.4g}"


def _solution(problem: Problem, chosen: Chosen, way: str) -> Solution:
    changes = np.flatnonzero(np.diff(chosen.numbers)) + 1
    order = [problem.devices[number].name for number in chosen.numbers[np.r_[0, changes]]]
    fit = "" if chosen.fits else "; nothing was found to fit every device's memory"
    return Solution(
        problem.assignment(chosen.numbers),
        f"{' → '.join(order)}, the best {problem.objective} of {way}{fit}",
    )
