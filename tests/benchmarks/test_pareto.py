"""The true front is what comparing everything with everything leaves; hypervolumes are volumes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from benchmarks.pareto import (
    hypervolume,
    nondominated,
    points_of,
    share_of_hypervolume,
    true_front,
)
from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from tests.partition.exhaustive import every_assignment
from tests.partition.networks import chain, device_sets, networks
from tests.partition.strategy_contract import MB, equal

POINTS = arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.just(3)),
                       elements=st.integers(0, 5).map(float))  # fmt: skip


def dominates(left: np.ndarray, right: np.ndarray) -> bool:
    return bool((left <= right).all() and (left < right).any())


@given(POINTS)
def test_what_nothing_betters_is_kept_once(points: np.ndarray) -> None:
    kept = points[nondominated(points)]
    expected = {
        tuple(point) for point in points if not any(dominates(other, point) for other in points)
    }
    assert {tuple(point) for point in kept} == expected
    assert len(kept) == len(expected)


@given(POINTS, st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_the_hypervolume_is_that_of_the_unit_cubes_it_covers(
    points: np.ndarray, reference: list[int]
) -> None:
    cubes = np.indices(reference).reshape(3, -1).T
    covered = (points[None] <= cubes[:, None]).all(axis=2).any(axis=1)
    assert hypervolume(points, reference) == covered.sum()


@given(POINTS)
def test_a_front_has_all_of_its_own_hypervolume_and_no_part_of_it_has_more(
    points: np.ndarray,
) -> None:
    front = points[nondominated(points)]
    assert share_of_hypervolume(points, front) == pytest.approx(1)
    assert 0 <= share_of_hypervolume(front[:1], front) <= 1 + 1e-12


@given(networks(max_layers=5), device_sets(max_devices=3), st.booleans())
@settings(deadline=None, max_examples=15)
def test_the_true_front_is_that_of_all_assignments(
    network: object, devices: tuple[Device, ...], pinned: bool
) -> None:
    pins = {network.layers[0].name: devices[-1].name} if pinned else {}
    problem = Problem(network, devices, pins)
    every = points_of(problem, problem.costs.evaluate(every_assignment(problem)))
    expected = every[nondominated(every)]
    front = true_front(problem)
    # Like devices are interchangeable, but sums of their loads may be rounded in another order.
    assert share_of_hypervolume(front.points, expected) == pytest.approx(1)
    costs = problem.costs.evaluate(front.numbers)
    np.testing.assert_array_equal(points_of(problem, costs), front.points)


def test_layers_of_one_group_stay_together() -> None:
    problem = Problem(chain(10**9, 10**9, 10**9, 10**9), equal(2))
    front = true_front(problem, [0, 0, 1, 1])
    assert (front.numbers[:, 0] == front.numbers[:, 1]).all()
    assert (front.numbers[:, 2] == front.numbers[:, 3]).all()
    assert len(front.points) <= 2


def test_only_what_fits_is_on_the_front() -> None:
    problem = Problem(chain(1, 1, weights=[4 * MB, 4 * MB]), equal(2, 71 * MB))
    front = true_front(problem)
    assert all(len(set(row)) == 2 for row in front.numbers.tolist())
    with pytest.raises(PartitionError, match="no assignment fits"):
        true_front(Problem(chain(1, 1, weights=[9 * MB, 9 * MB]), equal(2, 71 * MB)))


def test_too_many_assignments_are_not_looked_at() -> None:
    with pytest.raises(PartitionError, match=r"1000000000000 assignments are too many"):
        true_front(Problem(chain(*[1] * 12), equal(10)))
