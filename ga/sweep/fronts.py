"""Fronts of two costs, and how much a front dominates.

Both costs are relative to those of the usual parameters, so that these have the point (1, 1). The
*hypervolume* of some points is the area that they dominate, up to `REFERENCE`: of two fronts, the
better one has the larger area.

Source: E. Zitzler, L. Thiele, "Multiobjective evolutionary algorithms: a comparative case study and
the strength Pareto approach", IEEE Transactions on Evolutionary Computation, 1999.
"""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[float, float]

REFERENCE: Point = (1.1, 1.1)
"""Costs above these count for nothing."""


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


def hypervolume(points: Sequence[Point], reference: Point = REFERENCE) -> float:
    """Return the area that `points` dominate below `reference`.

    >>> round(hypervolume([(1.0, 0.9), (0.9, 1.0), (1.0, 1.0)]), 4)
    0.03
    """
    area, top = 0.0, reference[1]
    for index in front(points):
        first, second = points[index]
        if first < reference[0] and second < top:
            area += (reference[0] - first) * (top - second)
            top = second
    return area
