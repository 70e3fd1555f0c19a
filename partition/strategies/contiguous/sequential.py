"""Optimal contiguous segments in topological order, by dynamic programming.

The dynamic programs run over segments (`partition.strategies.contiguous.segments`) and also choose
the order of unlike devices; a device may stay empty. The result is the exact optimum that
`sequential-count`, `sequential-profiled` and `sequential-balanced` approximate, and that of
`k-stage` if no device gets two stages. For more than about eight unlike devices it is the optimum
over fewer cut points (`partition.strategies.contiguous.cuts`). By objective:

- **period**: the shortest period; then, among all cuts that come within `TOLERANCE` of it, those
  that move the fewest bytes.
- **memory**: the least share of its room that the fullest device holds; then, within `TOLERANCE`
  of it, the shortest period.
- **latency**: the least sum of the stages' times and transfers (Velasco-Montero et al. 2023,
  Eq. 5), which is the latency of a frame that finds the pipeline empty.
- **energy**: the fewest joules per frame. Waiting costs power for as long as a period lasts, so one
  dynamic program is solved for each of several bounds on the period, and the best result taken.
  Between two bounds, `NEXT_PERIOD` apart, it may miss the optimum by the power of waiting.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem, SearchProgress, Solution
from partition.strategies.contiguous.cuts import best_cuts, expanded, thinned
from partition.strategies.contiguous.segments import Segments, segments

TOLERANCE = 0.01
"""By how much the first objective may be missed for the sake of the second (relative)."""

NEXT_PERIOD = 1.4
"""The factor between consecutive bounds on the period under which energy is minimised."""

_QUICKEST = "shortest period by dynamic programming, then fewest bytes within {:.0%} of it"

WAYS = {
    "both": _QUICKEST,
    "paper": _QUICKEST,
    "period": _QUICKEST,
    "memory": "least share of memory on the fullest device by dynamic programming, then shortest "
    "period within {:.0%} of it",
    "latency": "least time of a frame that finds the pipeline empty, by dynamic programming",
    "energy": "least energy per frame by dynamic programs under several bounds on the period",
}


class Sequential:
    """The strategy `sequential`: each device computes a run of consecutive layers.

    >>> from cnn.network import Layer, Network, Tensor
    >>> from partition.devices import Device
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xyz"}
    >>> layers = (
    ...     Layer("l0", "Conv", ("x",), ("y",), (), 10**9),
    ...     Layer("l1", "Conv", ("y",), ("z",), (), 10**9),
    ... )
    >>> network = Network("net", layers, tensors, {}, ("x",), ("z",))
    >>> Sequential().solve(Problem(network, (Device("a"), Device("b")))).assignment
    {'l0': 'a', 'l1': 'b'}
    """

    name = "sequential"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` for pins that no contiguous cut respects.

        Where no cut fits the devices' memory, the solution is the cut whose fullest device exceeds
        its limit least.
        """
        numbers, fits = best_contiguous(problem, segments(problem))
        used = len(set(numbers.tolist()))
        problem.on_progress(SearchProgress(1, 1, f"{used} segment{'s' * (used > 1)}"))
        fit = "" if fits else "; no contiguous cut was found to fit every device's memory"
        way = WAYS[problem.objective].format(TOLERANCE)
        return Solution(
            problem.assignment(numbers), f"contiguous cuts into {used} segments, {way}{fit}"
        )


def contiguous_cut(problem: Problem, tolerance: float = TOLERANCE) -> tuple[NDArray[np.intp], bool]:
    """Return the cut of the shortest period for any objective of the problem; see
    `best_contiguous`."""
    priced, places = thinned(segments(problem))
    found = _quickest(priced, priced.fitting(), tolerance)
    fits = found is not None
    return expanded(least_overfull(problem, priced) if found is None else found, places), fits


def best_contiguous(problem: Problem, priced: Segments) -> tuple[NDArray[np.intp], bool]:
    """Return a device number per layer, and whether every device's memory is expected to suffice.

    The layers are those between the positions of `priced`. Raises `PartitionError` for pins that no
    contiguous cut respects.
    """
    priced, places = thinned(priced)
    fitting = priced.fitting()
    match problem.objective:
        case "both" | "paper" | "period":
            found = _quickest(priced, fitting, TOLERANCE)
        case "memory":
            found = _lean(priced, fitting)
        case "latency":
            found = _least(priced, fitting, priced.response_s)
        case "energy":
            found = _frugal(priced, fitting)
    fits = found is not None
    return expanded(least_overfull(problem, priced) if found is None else found, places), fits


def least_overfull(problem: Problem, priced: Segments) -> NDArray[np.intp]:
    """Return the cut whose fullest device exceeds its limit least; see `best_contiguous`."""
    values = np.where(priced.allowed, priced.memory_share, np.inf)
    found = best_cuts(priced.kinds, values, total=False)
    if found is None:
        raise no_cut_respects(problem)
    return found[1]


def no_cut_respects(problem: Problem) -> PartitionError:
    """Return the error for pins that no contiguous cut respects."""
    pinned = ", ".join(f"{layer!r} to {device!r}" for layer, device in problem.pins.items())
    return PartitionError(
        f"no contiguous cut respects these pins: {pinned}; pin each device's layers to one "
        "run of the topological order, or choose strategy 'vertical'"
    )


def _quickest(
    priced: Segments, fitting: NDArray[np.bool_], tolerance: float
) -> NDArray[np.intp] | None:
    return _then(priced, fitting, priced.seconds, priced.received_bytes, tolerance, total=True)


def _lean(priced: Segments, fitting: NDArray[np.bool_]) -> NDArray[np.intp] | None:
    return _then(priced, fitting, priced.memory_share, priced.seconds, TOLERANCE, total=False)


def _then(
    priced: Segments,
    fitting: NDArray[np.bool_],
    first: Floats,
    second: Floats,
    tolerance: float,
    *,
    total: bool,
) -> NDArray[np.intp] | None:
    """Minimise the largest `first`, then, within `tolerance` of it, minimise `second`."""
    best = best_cuts(priced.kinds, np.where(fitting, first, np.inf), total=False)
    if best is None:
        return None
    close = fitting & (first <= best[0] * (1 + tolerance))
    better = best_cuts(priced.kinds, np.where(close, second, np.inf), total=total)
    return (best if better is None else better)[1]


def _least(priced: Segments, fitting: NDArray[np.bool_], values: Floats) -> NDArray[np.intp] | None:
    best = best_cuts(priced.kinds, np.where(fitting, values, np.inf), total=True)
    return None if best is None else best[1]


def _frugal(priced: Segments, fitting: NDArray[np.bool_]) -> NDArray[np.intp] | None:
    quickest = best_cuts(priced.kinds, np.where(fitting, priced.seconds, np.inf), total=False)
    if quickest is None:
        return None
    used = priced.held_bytes > 0
    tried = [quickest[1]]
    period_s = quickest[0] * (1 + 1e-12)
    longest_s = float(priced.seconds[:, 0, -1].max())
    while True:
        joules = priced.rates.energy_j(priced.busy_s, np.array(period_s), priced.sent_bytes) * used
        found = _least(priced, fitting & (priced.seconds <= period_s), joules)
        if found is not None:
            tried.append(found)
        if period_s >= longest_s:
            break
        period_s *= NEXT_PERIOD
    for kind, members in enumerate(priced.kinds):
        if fitting[kind, 0, -1]:
            tried.append(np.full(len(quickest[1]), members[0]))
    return min(tried, key=priced.energy_j)
