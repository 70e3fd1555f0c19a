"""Seconds of layers, of cutting and of runs that agree with measured subnets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cnn.network import Network
from partition.devices import Device
from partition.errors import PartitionError
from partition.measured.subnet_fit import FUSED, RUN_MACS, MeasuredSubnet, fit_to_subnets
from partition.pricing.compute_time import layer_seconds
from tests.partition.networks import chain

DEVICE = Device("d", macs_per_s=1e10, cut_s_per_byte=0.0)
"""A device that cuts for nothing; a run is thought to cost it 0.8 ms."""

NETWORK = chain(*[number * 10**10 for number in range(1, 7)])
NAMES = tuple(layer.name for layer in NETWORK.layers)
SECONDS = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
"""What the layers take by the device's figures."""

RUN_S = RUN_MACS / DEVICE.macs_per_s


def fit(
    measured: list[MeasuredSubnet], device: Device = DEVICE, network: Network = NETWORK
) -> tuple[Device, NDArray[np.float64]]:
    """The device and the seconds of its layers by these measurements."""
    (found,), seconds = fit_to_subnets(network, [device], measured)
    return found, seconds[:, 0]


def alone(seconds: Sequence[float]) -> list[MeasuredSubnet]:
    return [MeasuredSubnet(0, (name,), s) for name, s in zip(NAMES, seconds, strict=True)]


def runs(seconds: NDArray[np.float64], more_s: float) -> list[MeasuredSubnet]:
    """Every run of at least two layers, in the sum of their seconds and `more_s`."""
    return [
        MeasuredSubnet(0, NAMES[a:b], float(seconds[a:b].sum()) + more_s)
        for a in range(6)
        for b in range(a + 2, 7)
    ]


def test_what_agrees_with_the_estimate_up_to_a_factor_scales_it() -> None:
    found, seconds = fit([MeasuredSubnet(0, NAMES, 42.0 + 2 * RUN_S)])
    assert seconds == pytest.approx(2 * SECONDS)
    assert found.run_s == pytest.approx(2 * RUN_S)


def test_layers_alone_say_nothing_of_a_run() -> None:
    found, seconds = fit(alone(3 * SECONDS))
    assert seconds == pytest.approx(3 * SECONDS)
    assert found.run_s == DEVICE.run_s


def test_subnets_are_met_nearly_and_the_rest_is_scaled_with_them() -> None:
    _, found = fit([MeasuredSubnet(0, NAMES[:2], 1.5), MeasuredSubnet(0, NAMES[2:4], 10.5)])
    assert found[:2].sum() == pytest.approx(1.5, rel=0.1)
    assert found[2:4].sum() == pytest.approx(10.5, rel=0.1)
    assert found[4] / 5.0 == pytest.approx(found[5] / 6.0)
    assert 0.5 < found[4] / 5.0 < 1.5


def test_layers_alone_tell_how_they_compare_and_a_fused_subnet_how_long_they_take() -> None:
    """All layers alone take three times as long as they should, and one ten times."""
    slow = 3 * SECONDS * [1, 1, 10, 1, 1, 1]
    _, found = fit([*alone(slow), MeasuredSubnet(0, NAMES, 48.0)])
    assert found.sum() == pytest.approx(48.0, rel=0.05)
    others = found[[0, 1, 3, 4, 5]] / SECONDS[[0, 1, 3, 4, 5]]
    assert others == pytest.approx([others[0]] * 5, rel=0.05)
    assert 5 < found[2] / SECONDS[2] / others[0] < 10


@settings(max_examples=30)
@given(
    st.lists(st.floats(0.2, 5), min_size=6, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4),
)
def test_subnets_that_agree_with_some_seconds_are_met_better_than_by_the_estimate(
    factors: list[float], spans: list[tuple[int, int]]
) -> None:
    true = SECONDS * factors
    ends = [min(max(span) + 2, 6) for span in spans]
    ranges = [(min(*span, end - 2), end) for span, end in zip(spans, ends, strict=True)]
    wanted = np.array([true[a:b].sum() for a, b in ranges])
    device, found = fit([MeasuredSubnet(0, NAMES[a:b], true[a:b].sum()) for a, b in ranges])
    assert (found > 0).all()

    def off(seconds: NDArray[np.float64], run_s: float) -> float:
        sums = np.array([seconds[a:b].sum() + run_s for a, b in ranges])
        return float(np.sqrt(1 + np.square(np.log(sums / wanted) / FUSED)).sum())

    scale = wanted.sum() / sum(SECONDS[a:b].sum() + RUN_S for a, b in ranges)
    assert off(found, device.run_s) <= off(SECONDS * scale, RUN_S * scale) + 1e-9


def test_a_subnet_that_contradicts_others_counts_little() -> None:
    right = [MeasuredSubnet(0, NAMES, 21.0)] * 2
    _, found = fit([*right, MeasuredSubnet(0, NAMES, 84.0)])
    assert found.sum() == pytest.approx(21.0, rel=0.05)


def test_what_cutting_costs_is_found_and_taken_off() -> None:
    """Every tensor has 8 floats: each subnet has 64 bytes that are cut."""
    device = replace(DEVICE, cut_s_per_byte=1e-2)
    truth, per_byte = 2 * SECONDS, 3e-2
    found, seconds = fit(runs(truth, 64 * per_byte), device)
    assert found.cut_s_per_byte == pytest.approx(per_byte, rel=0.2)
    assert seconds == pytest.approx(truth, rel=0.2)


def test_what_a_run_costs_is_found_and_taken_off() -> None:
    truth, run_s = 2 * SECONDS, 2.0
    found, seconds = fit(runs(truth, run_s), replace(DEVICE, run_s=0.5))
    assert found.run_s == pytest.approx(run_s, rel=0.2)
    assert seconds == pytest.approx(truth, rel=0.1)


def test_a_device_that_is_slow_at_weights_is_slow_at_those_that_were_not_measured() -> None:
    """By the device's figures, the weights of the second, fourth and sixth layer take 1 s each."""
    network = chain(*[10**10] * 6, weights=[0, 25 * 10**8] * 3)
    device = replace(DEVICE, memory_bytes_per_s=1e10)
    measured = [
        MeasuredSubnet(0, NAMES[:2], 1.0 + 3.0),
        MeasuredSubnet(0, NAMES[2:4], 1.0 + 3.0),
        MeasuredSubnet(0, NAMES[:3], 2.0 + 3.0),
    ]
    _, found = fit(measured, device, network)
    assert 2.0 < found[5] / found[4] < 4.0


def test_other_devices_are_left_alone() -> None:
    devices = [DEVICE, Device("e", macs_per_s=1e10)]
    found, seconds = fit_to_subnets(NETWORK, devices, [MeasuredSubnet(0, NAMES, 42.0)])
    assert seconds[:, 0] == pytest.approx(2 * SECONDS, rel=1e-3)
    assert seconds[:, 1] == pytest.approx(SECONDS)
    assert found[1] == devices[1]


def test_layers_thought_to_be_free_share_what_was_measured_of_them_together() -> None:
    views = tuple(replace(layer, operator="Identity", macs=0) for layer in NETWORK.layers)
    network = replace(NETWORK, layers=views)
    _, found = fit([MeasuredSubnet(0, NAMES[:3], 6.0)], network=network)
    assert found[:3] == pytest.approx([2, 2, 2], rel=1e-3)


def test_what_a_free_layer_takes_alone_says_nothing() -> None:
    """An activation that an engine fuses takes time only where it runs by itself."""
    layers = tuple(
        replace(layer, operator="Relu", macs=0) if number % 2 else layer
        for number, layer in enumerate(NETWORK.layers)
    )
    network = replace(NETWORK, layers=layers)
    _, found = fit([*alone([1, 9, 3, 9, 5, 9]), MeasuredSubnet(0, NAMES, 9.0)], network=network)
    assert found == pytest.approx([1, 0, 3, 0, 5, 0], abs=0.02)


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
        fit([subnet])


def test_what_all_devices_are_off_in_common_holds_for_what_one_has_not_computed() -> None:
    """Three boards compute three times as slowly as described; the fourth has computed only layers
    of many weights, in the time that was described."""
    heavy = chain(10**10, 10**10, 10**10, 0, weights=[4, 4, 4, 10**8])
    names = [layer.name for layer in heavy.layers]
    devices = [replace(DEVICE, name=name) for name in "abcd"]
    described = layer_seconds(heavy, devices)[:, 0]
    measured = [MeasuredSubnet(n, tuple(names[:3]), 3 * described[:3].sum()) for n in range(3)]
    measured.append(MeasuredSubnet(3, tuple(names[3:]), described[3:].sum(), is_phase=True))
    _, found = fit_to_subnets(heavy, devices, measured)
    assert found[:3, 3].sum() == pytest.approx(3 * described[:3].sum(), rel=0.3)
    assert found[3:, 3].sum() == pytest.approx(described[3:].sum(), rel=0.3)
