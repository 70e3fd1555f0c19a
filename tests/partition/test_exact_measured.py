"""Strategy `exact` with measured times, which tell devices apart, and its model's integrity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor
from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Placement, Shape
from partition.strategies.exact.refusals import refusal
from partition.strategies.exact.strategy import Exact
from partition.strategies.exact.terms import terms_of
from tests.partition.exhaustive import every_assignment
from tests.partition.networks import chain, networks
from tests.partition.strategy_contract import MB, equal

MEASURED = np.array([[0.04, 0.01], [0.01, 0.04], [0.012, 0.01], [0.01, 0.012]])
"""Seconds of four layers on two devices that are equal but for their names."""


@st.composite
def measured_problems(draw: st.DrawFn) -> Problem:
    """A small problem whose devices differ in nothing but names, measured seconds, and the machine
    that they are on; layers and messages may take no time at all."""
    network = draw(networks(max_layers=5))
    count = draw(st.integers(2, 3))
    costs = st.sampled_from((0.0, 2.0**-14))
    own = {"firing_s": 0.0, "cut_s_per_byte": 0.0, "wire_s_per_message": draw(costs)}
    rate = draw(st.sampled_from((0.0, 2.0**-31)))
    shared = ((None,) * 3, ("box",) * 3, ("box", None, None), ("box", "box", None))
    hosts = draw(st.sampled_from(shared))
    devices = tuple(
        Device(f"d{i}", host=hosts[i], wire_s_per_byte=rate, **own) for i in range(count)
    )
    seconds = st.sampled_from((0.01, 0.02)) | st.floats(1e-3, 0.1)
    rows = st.lists(seconds, min_size=count, max_size=count) | st.just([0.0] * count)
    size = len(network.layers)
    table = np.array(draw(st.lists(rows, min_size=size, max_size=size)))
    assume(table.any())
    return Problem(network, devices, layer_s=table)


@given(measured_problems(), st.booleans())
@settings(max_examples=80)
def test_the_optimum_is_that_of_all_assignments_whatever_was_measured(
    problem: Problem, contiguous: bool
) -> None:
    contiguous &= terms_of(problem).are_apart  # stages keep the user's order elsewhere
    every = every_assignment(problem, contiguous=contiguous)
    solution = Exact("exact", Shape(contiguous)).solve(problem)
    numbers = problem.numbers(solution.assignment)
    assert numbers.tolist() in every.tolist()
    assert solution.optimal
    value = problem.costs.evaluate(numbers[None]).period_s[0]
    assert value == pytest.approx(problem.costs.evaluate(every).period_s.min(), rel=1e-4)


@pytest.mark.parametrize(("contiguous", "best_s"), [(True, 0.0326), (False, 0.0212)])
def test_devices_that_differ_only_in_measured_seconds_are_told_apart(
    contiguous: bool, best_s: float
) -> None:
    problem = Problem(chain(*[1000] * 4), equal(2), layer_s=MEASURED)
    solution = Exact("exact", Shape(contiguous)).solve(problem)
    numbers = problem.numbers(solution.assignment)
    assert solution.optimal
    assert problem.costs.evaluate(numbers[None]).period_s[0] == pytest.approx(best_s, abs=1e-6)


def test_a_search_without_an_answer_is_not_the_users_mistake_if_nothing_is_limited() -> None:
    problem = Problem(chain(*[1000] * 4), equal(2), layer_s=MEASURED)
    error = refusal(problem, Shape())
    assert not isinstance(error, PartitionError)
    assert "a bug of csdf-edge" in str(error)


def test_nor_if_there_is_a_partition_that_respects_the_limits_and_the_pins() -> None:
    problem = Problem(chain(*[1000] * 4), equal(2, 200 * MB), {"l0": "d0"}, layer_s=MEASURED)
    assert not isinstance(refusal(problem, Shape()), PartitionError)


def test_stating_loads_leaves_the_decisions_as_they_are() -> None:
    layers = (
        Layer("l0", "Conv", ("x",), ("a",), ("own",)),
        Layer("l1", "Conv", ("a",), ("b",), ("shared",)),
        Layer("l2", "Conv", ("b",), ("y",), ("shared",)),
    )
    tensors = {name: Tensor(name, (1,), "float32") for name in "xaby"}
    weights = {name: Tensor(name, (1,), "float32") for name in ("own", "shared")}
    network = Network("one unit", layers, tensors, weights, ("x",), ("y",))
    devices = (*equal(2), Device("d2", cache_bytes=0))
    placement = Placement(terms_of(Problem(network, devices)), Shape())
    decisions = [[str(at) for at in row] for row in placement.at]
    loads = LoadVariables(placement)
    loads.keep_within([200 * MB] * 3, 3)
    _ = loads.period, loads.energy, loads.latency  # each makes its constraints when asked for
    assert [[str(at) for at in row] for row in placement.at] == decisions
