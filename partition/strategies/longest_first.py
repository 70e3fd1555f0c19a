"""Longest processing time first (LPT), a heuristic that gives good solutions to start from.

Layers, or groups of them, are assigned in order of descending size, each to the device whose load,
relative to its speed, is then least. Graham showed that the largest load is at most 4/3 − 1/(3n)
times the optimum on n equal devices.

Source: R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied
Mathematics, 1969.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def longest_first(
    rng: np.random.Generator,
    count: int,
    sizes: NDArray[np.float64],
    pinned: NDArray[np.integer],
    spread: float = 0.0,
) -> NDArray[np.int16]:
    """Return `count` assignments, [count, items]; the first by the sizes as they are.

    `sizes` [items, devices] is what each item costs on each device. In all but the first, the order
    is by sizes that are multiplied with random factors in 1 ± `spread`. Pinned items (−1: free)
    are loaded first.
    """
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
