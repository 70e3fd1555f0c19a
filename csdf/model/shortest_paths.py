"""Shortest ways by Dijkstra's algorithm, in whole numbers of any size.

Floats of a schedule are exact and may exceed 64 bits, which SciPy's algorithms do not take.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Set

Leaving = Callable[[int], Iterable[tuple[int, int]]]
"""The edges that leave a node: (the node that they lead to, their length ≥ 0)."""


def shortest_way(
    leaving: Leaving,
    start: int,
    target: int,
    below: int | None = None,
    closed: Set[int] = frozenset(),
) -> int | None:
    """The length of the shortest way of at least one edge; None if there is none.

    With `start` as the target that is the shortest cycle through it. Ways that are not shorter
    than `below`, or that pass one of the nodes `closed`, do not count. `leaving` is asked once for
    each node that the search goes on from.
    """
    best: dict[int, int] = {}
    queue = [(0, start)]
    while queue:
        far, node = heapq.heappop(queue)
        if node == target and target in best:
            return far
        if far > best.get(node, far):
            continue
        for other, length in leaving(node):
            further = far + length
            if below is not None and further >= below:
                continue
            if further < best.get(other, further + 1) and other not in closed:
                best[other] = further
                heapq.heappush(queue, (further, other))
    return None
