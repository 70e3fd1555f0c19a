"""Good solutions to start from: longest processing time first.

Items are assigned in order of descending size, each to the device whose load, relative to its
speed, is then least. Graham showed that the largest load is at most 4/3 − 1/(3n) times the optimum
on n equal devices.

Source: R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM Journal on Applied
Mathematics, 1969.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ga.operators import Population


def longest_first(
    rng: np.random.Generator,
    count: int,
    sizes: NDArray[np.float64],
    pinned: NDArray[np.integer],
    spread: float = 0.0,
) -> Population:
    """`count` assignments, [count, genes]; the first by the sizes as they are.

    `sizes` [genes, devices] is what each gene costs on each device. In all but the first, the order
    is by sizes that are multiplied with random factors in 1 ± `spread`. Pinned genes (−1: free)
    are loaded first.
    """
    genes, devices = sizes.shape
    blur = rng.uniform(1 - spread, 1 + spread, (count, genes))
    blur[0] = 1.0
    order = np.argsort(-sizes.mean(axis=1) * blur, axis=1, kind="stable")
    assigned = np.empty((count, genes), dtype=np.int16)
    load = np.zeros((count, devices))
    for gene in np.flatnonzero(pinned >= 0):
        assigned[:, gene] = pinned[gene]
        load[:, pinned[gene]] += sizes[gene, pinned[gene]]
    rows = np.arange(count)
    for genes_now in order.T:
        free = pinned[genes_now] < 0
        best = (load + sizes[genes_now]).argmin(axis=1)
        chosen = np.where(free, best, assigned[rows, genes_now])
        assigned[rows, genes_now] = chosen
        load[rows, chosen] += np.where(free, sizes[genes_now, chosen], 0.0)
    return assigned
