"""Fronts of two costs, and how much a front of two or more dominates.

The *hypervolume* of some points is the area or the volume that they dominate, up to a reference
point: of two fronts, the one with the larger hypervolume is better. The costs of a sweep are
relative to those of the usual parameters, so that these have the point (1, 1).

Source: E. Zitzler, L. Thiele, "Multiobjective evolutionary algorithms: a comparative case study and
the strength Pareto approach", IEEE Transactions on Evolutionary Computation, 1999.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

Point = tuple[float, float]

REFERENCE: Point = (1.1, 1.1)
"""The reference point of sweeps: costs above these count for nothing."""


def front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the points that no other dominates, by ascending first cost.

    Of equal points, the first one counts.

    >>> front([(1.0, 1.0), (0.9, 1.2), (1.0, 1.1), (0.9, 1.2)])
    [1, 0]
    """
    kept: list[int] = []
    for index in sorted(range(len(points)), key=lambda each: (*points[each], each)):
        if not kept or points[index][1] < points[kept[-1]][1]:
            kept.append(index)
    return kept


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float] = REFERENCE) -> float:
    """Return the volume that `points` of two or more costs dominate below `reference`.

    A point that is not better than the reference in every cost counts for nothing.

    >>> round(hypervolume([(1.0, 0.9), (0.9, 1.0), (1.0, 1.0)]), 4)
    0.03
    """
    inside = [own for own in points if all(map(operator.lt, own, reference))]
    if len(reference) == 2:
        area, top = 0.0, reference[1]
        for first, second in sorted(map(tuple, inside)):
            if second < top:
                area += (reference[0] - first) * (top - second)
                top = second
        return area
    inside.sort(key=operator.itemgetter(-1))
    heights = [*(own[-1] for own in inside), reference[-1]]
    return sum(
        hypervolume([own[:-1] for own in inside[:above]], reference[:-1])
        * (heights[above] - heights[above - 1])
        for above in range(1, len(heights))
        if heights[above] > heights[above - 1]
    )
