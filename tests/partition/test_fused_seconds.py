"""Seconds of layers that agree with measured subnets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.profiles import MeasuredSubnet, fit_to_subnets
from tests.partition.networks import chain

NO_CUTTING = Device("d", cut_s_per_byte=0.0)
NETWORK = chain(*[1] * 6)
NAMES = tuple(layer.name for layer in NETWORK.layers)
SECONDS = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])


def seconds_of(measured: list[MeasuredSubnet], seconds: NDArray[np.float64] = SECONDS) -> Any:
    """Seconds of layers by these measurements, on a device that cuts for nothing."""
    return fit_to_subnets(NETWORK, [NO_CUTTING], seconds, measured)[1][:, 0]


def alone(seconds: Sequence[float]) -> list[MeasuredSubnet]:
    return [MeasuredSubnet(0, (name,), s) for name, s in zip(NAMES, seconds, strict=True)]


def test_what_agrees_with_the_estimate_up_to_a_factor_scales_it() -> None:
    assert seconds_of([MeasuredSubnet(0, NAMES, 42.0)]) == pytest.approx(2 * SECONDS[:, 0])
    assert seconds_of(alone(3 * SECONDS[:, 0])) == pytest.approx(3 * SECONDS[:, 0])


def test_subnets_are_met_nearly_and_the_rest_is_scaled_with_them() -> None:
    found = seconds_of([MeasuredSubnet(0, NAMES[:2], 1.5), MeasuredSubnet(0, NAMES[2:4], 10.5)])
    assert found[:2].sum() == pytest.approx(1.5, rel=0.1)
    assert found[2:4].sum() == pytest.approx(10.5, rel=0.1)
    assert found[4:] == pytest.approx([5.0 * 1.2, 6.0 * 1.2], rel=1e-6)


def test_layers_alone_tell_how_they_compare_and_a_fused_subnet_how_long_they_take() -> None:
    """All layers alone take three times as long as they should, and one ten times."""
    slow = 3 * SECONDS[:, 0] * [1, 1, 10, 1, 1, 1]
    found = seconds_of([*alone(slow), MeasuredSubnet(0, NAMES, 48.0)])
    assert found.sum() == pytest.approx(48.0, rel=0.05)
    others = found[[0, 1, 3, 4, 5]] / SECONDS[[0, 1, 3, 4, 5], 0]
    assert others == pytest.approx([others[0]] * 5, rel=0.05)
    assert 5 < found[2] / SECONDS[2, 0] / others[0] < 10


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.2, 5), min_size=6, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
)
def test_subnets_that_agree_with_some_seconds_are_foreseen_better_than_by_the_estimate(
    factors: list[float], spans: list[tuple[int, int]]
) -> None:
    true = SECONDS[:, 0] * factors
    ends = [min(max(span) + 2, 6) for span in spans]
    ranges = [(min(*span, end - 2), end) for span, end in zip(spans, ends, strict=True)]
    wanted = np.array([true[a:b].sum() for a, b in ranges])
    found = seconds_of([MeasuredSubnet(0, NAMES[a:b], true[a:b].sum()) for a, b in ranges])
    assert (found > 0).all()

    def off(seconds: NDArray[np.float64]) -> float:
        sums = np.array([seconds[a:b].sum() for a, b in ranges])
        return float(np.square(np.log(sums / wanted)).sum())

    scaled = SECONDS[:, 0] * wanted.sum() / sum(SECONDS[a:b].sum() for a, b in ranges)
    assert off(found) <= off(scaled) + 1e-9


def test_subnets_that_contradict_each_other_are_met_half_way() -> None:
    found = seconds_of([MeasuredSubnet(0, NAMES, 21.0), MeasuredSubnet(0, NAMES, 84.0)])
    assert found.sum() == pytest.approx(42.0, rel=0.01)


def test_what_cutting_costs_is_found_and_taken_off() -> None:
    """Every tensor has 8 floats: each layer alone has 64 bytes that are cut, as has the whole."""
    device = Device("d", cut_s_per_byte=1e-2)
    truth, per_byte = 2 * SECONDS[:, 0], 3e-2
    measured = [
        MeasuredSubnet(0, NAMES[a:b], float(truth[a:b].sum()) + 64 * per_byte)
        for a in range(6)
        for b in range(a + 2, 7)
    ]
    (found,), seconds = fit_to_subnets(NETWORK, [device], SECONDS, measured)
    assert found.cut_s_per_byte == pytest.approx(per_byte, rel=0.2)
    assert seconds[:, 0] == pytest.approx(truth, rel=0.2)


def test_other_devices_are_left_alone() -> None:
    both = np.repeat(SECONDS, 2, axis=1)
    devices = [NO_CUTTING, Device("e")]
    found, seconds = fit_to_subnets(NETWORK, devices, both, [MeasuredSubnet(0, NAMES, 42.0)])
    assert seconds[:, 0] == pytest.approx(2 * SECONDS[:, 0])
    assert (seconds[:, 1] == SECONDS[:, 0]).all()
    assert found[1] == devices[1]


def test_layers_thought_to_be_free_share_what_was_measured_of_them_together() -> None:
    found = seconds_of([MeasuredSubnet(0, NAMES[:3], 6.0)], np.zeros((6, 1)))
    assert found[:3] == pytest.approx([2, 2, 2])


def test_what_a_free_layer_takes_alone_says_nothing() -> None:
    """An activation that an engine fuses takes time only where it runs by itself."""
    free = SECONDS * [[1], [0], [1], [0], [1], [0]]
    found = seconds_of([*alone([1, 9, 3, 9, 5, 9]), MeasuredSubnet(0, NAMES, 9.0)], free)
    assert found == pytest.approx([1, 0, 3, 0, 5, 0], abs=0.01)


@pytest.mark.parametrize(
    ("subnet", "told"),
    [
        (MeasuredSubnet(0, ("ghost",), 1.0), "'ghost'"),
        (MeasuredSubnet(0, (), 1.0), "no layer"),
        (MeasuredSubnet(3, NAMES, 1.0), "device 3"),
        (MeasuredSubnet(0, NAMES, 0.0), "measure it again"),
        (MeasuredSubnet(0, NAMES, float("nan")), "measure it again"),
    ],
)
def test_what_cannot_be_is_refused(subnet: MeasuredSubnet, told: str) -> None:
    with pytest.raises(PartitionError, match=told):
        seconds_of([subnet])
