"""Seconds of layers that agree with measured subnets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partition.devices import Device
from partition.errors import PartitionError
from partition.fused_seconds import MeasuredSubnet, corrected
from tests.partition.networks import chain

NO_CUTTING = Device("d", cut_s_per_byte=0.0)
NETWORK = chain(*[1] * 6)
NAMES = tuple(layer.name for layer in NETWORK.layers)
SECONDS = np.array([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])


def test_disjoint_subnets_come_out_as_measured_and_the_rest_is_scaled_with_them() -> None:
    found = corrected(
        NETWORK,
        [NO_CUTTING],
        SECONDS,
        [MeasuredSubnet(0, NAMES[:2], 1.5), MeasuredSubnet(0, NAMES[2:4], 10.5)],
    )[:, 0]
    assert found == pytest.approx([0.5, 1.0, 4.5, 6.0, 5.0 * 1.2, 6.0 * 1.2])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=6, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
)
def test_subnets_that_agree_with_some_seconds_come_out_as_measured(
    true: list[float], spans: list[tuple[int, int]]
) -> None:
    ranges = [(min(span), max(span) + 1) for span in spans]
    measured = [MeasuredSubnet(0, NAMES[a:b], sum(true[a:b])) for a, b in ranges]
    found = corrected(NETWORK, [NO_CUTTING], SECONDS, measured)[:, 0]
    assert [found[a:b].sum() for a, b in ranges] == pytest.approx(
        [sum(true[a:b]) for a, b in ranges], rel=0.02
    )
    assert (found > 0).all()


def test_subnets_that_contradict_each_other_are_met_half_way() -> None:
    measured = [MeasuredSubnet(0, NAMES, 21.0), MeasuredSubnet(0, NAMES, 84.0)]
    found = corrected(NETWORK, [NO_CUTTING], SECONDS, measured)[:, 0]
    assert found.sum() == pytest.approx(42.0)


def test_what_cutting_has_cost_is_taken_off() -> None:
    device = Device("d", cut_s_per_byte=1e-3)
    # 8 floats go in and 8 come out: 64 ms.
    found = corrected(NETWORK, [device], SECONDS, [MeasuredSubnet(0, NAMES[1:3], 5.064)])[:, 0]
    assert found[1:3] == pytest.approx([2.0, 3.0])


def test_other_devices_are_left_alone() -> None:
    both = np.repeat(SECONDS, 2, axis=1)
    devices = [NO_CUTTING, Device("e")]
    found = corrected(NETWORK, devices, both, [MeasuredSubnet(0, NAMES, 42.0)])
    assert found[:, 0] == pytest.approx(2 * SECONDS[:, 0])
    assert (found[:, 1] == SECONDS[:, 0]).all()


def test_layers_thought_to_be_free_share_what_was_measured() -> None:
    free = np.zeros((6, 1))
    found = corrected(NETWORK, [NO_CUTTING], free, [MeasuredSubnet(0, NAMES[:3], 6.0)])[:, 0]
    assert found == pytest.approx([2, 2, 2, 0, 0, 0])


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
        corrected(NETWORK, [NO_CUTTING], SECONDS, [subnet])
