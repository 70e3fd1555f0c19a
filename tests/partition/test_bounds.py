"""The bounds that cost no search: no assignment of a small problem is below them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cnn.network import Network
from partition.devices import Device
from partition.objective import Objective
from partition.strategies.base import Problem
from partition.strategies.bounds import least_period_s, least_value
from partition.strategies.chosen import objective_value
from tests.partition.exhaustive import every_assignment
from tests.partition.networks import chain, device_sets, networks
from tests.partition.strategy_contract import equal


@given(
    networks(max_layers=5),
    device_sets(max_devices=3),
    st.sampled_from(("period", "latency", "energy", "memory")),
    st.integers(0, 2),
    st.booleans(),
)
@settings(max_examples=60)
def test_no_assignment_is_below_the_bound(
    network: Network,
    devices: tuple[Device, ...],
    objective: Objective,
    pin: int,
    limited: bool,
) -> None:
    if limited:
        devices = tuple(
            replace(device, memory_bytes=10**8 * (2 + number))
            for number, device in enumerate(devices)
        )
    pins = {network.layers[0].name: devices[pin % len(devices)].name} if pin else {}
    problem = Problem(network, devices, pins, objective=objective)
    values = objective_value(problem, problem.costs.evaluate(every_assignment(problem)))
    assert least_value(problem) <= values.min() * (1 + 1e-9)


def test_equal_devices_share_all_work_evenly_at_best() -> None:
    problem = Problem(chain(*[10**9] * 8), equal(4))
    assert least_period_s(problem) == pytest.approx(problem.costs.layer_s[:, 0].sum() / 4)


def test_unlike_devices_share_it_in_proportion_to_their_speeds() -> None:
    seconds = np.outer([1.0] * 12, [1.0, 0.5, 0.25])
    problem = Problem(chain(*[1] * 12), equal(3), layer_s=seconds)
    assert least_period_s(problem) == pytest.approx(12 / (1 + 2 + 4))


def test_devices_of_one_core_share_nothing() -> None:
    devices = tuple(replace(device, host="box") for device in equal(3))
    problem = Problem(chain(*[10**9] * 6), devices)
    assert least_period_s(problem) == pytest.approx(problem.costs.layer_s[:, 0].sum())


def test_a_long_layer_cannot_be_shared() -> None:
    problem = Problem(chain(10**9, 10**8), equal(5))
    assert least_period_s(problem) == problem.costs.layer_s[0, 0]


def test_a_pin_to_a_slow_device_counts() -> None:
    seconds = np.array([[9.0, 1.0], [1.0, 1.0]])
    problem = Problem(chain(1, 1), equal(2), {"l0": "d0"}, layer_s=seconds)
    assert least_period_s(problem) == 9.0
