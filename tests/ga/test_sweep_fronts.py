"""Fronts of two costs, and the area that they dominate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga.sweep.fronts import REFERENCE, Point, front, hypervolume

TENTHS = st.integers(0, 14).map(lambda tenths: tenths / 10)
POINTS = st.lists(st.tuples(TENTHS, TENTHS), max_size=8)


def dominates(one: Point, other: Point) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


@given(POINTS)
def test_the_front_is_what_nothing_dominates(points: list[Point]) -> None:
    kept = [points[index] for index in front(points)]
    assert set(kept) == {
        each for each in points if not any(dominates(other, each) for other in points)
    }
    assert kept == sorted(set(kept))


@given(POINTS)
def test_the_hypervolume_is_the_area_that_is_dominated(points: list[Point]) -> None:
    cells = [
        (first, second)
        for first in range(11)
        for second in range(11)
        if any(one <= first / 10 and other <= second / 10 for one, other in points)
    ]
    assert REFERENCE == (1.1, 1.1)
    assert hypervolume(points) == pytest.approx(len(cells) / 100)


@given(POINTS, st.tuples(TENTHS, TENTHS))
def test_another_point_never_makes_a_front_worse(points: list[Point], another: Point) -> None:
    assert hypervolume([*points, another]) >= hypervolume(points) - 1e-12
