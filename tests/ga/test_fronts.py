"""Fronts of two costs, and the area or volume that points dominate."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga.fronts import REFERENCE, Point, front, hypervolume

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


@given(st.lists(st.tuples(TENTHS, TENTHS, TENTHS), max_size=6))
def test_of_three_costs_the_hypervolume_is_a_volume(
    points: list[tuple[float, float, float]],
) -> None:
    cells = [
        cell
        for cell in itertools.product(range(10), repeat=3)
        if any(all(10 * a <= b + 1e-9 for a, b in zip(own, cell, strict=True)) for own in points)
    ]
    assert hypervolume(points, (1.0, 1.0, 1.0)) == pytest.approx(len(cells) / 1000)
