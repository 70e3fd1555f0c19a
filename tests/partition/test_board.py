"""Devices priced by what their boards have measured of themselves."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.network import Layer, Network, Tensor
from partition.devices import Device, LayerRates, slower
from partition.errors import PartitionError
from partition.measured.board import MeasuredFigures, with_figures
from partition.pricing.compute_time import INTEGER_SPEED, kind_of, layer_seconds
from tests.partition.networks import networks

FIGURES = MeasuredFigures(
    1, 2e-11, 3e-11, 5e-11, 1e-11, 7e-11, 4e-11, 8e-11, 6e-5, 9e-5, 3e-10, 2e-9
)
"""What a board has measured, with a different value for every figure."""

RATES = LayerRates(2e-11, 3e-11, 5e-11, 1e-11, 7e-11, 4e-11)
per_part = st.floats(1e-13, 1e-6)
figures = st.builds(MeasuredFigures, st.just(1), *[per_part] * 6, *[st.floats(0, 1e-3)] * 5)


@given(networks(), per_part, per_part)
def test_equal_rates_for_all_kinds_are_the_estimate_by_two_rates(
    network: Network, per_mac_s: float, per_byte_s: float
) -> None:
    """The estimate counts bytes of weights twice."""
    estimated = Device("a", macs_per_s=1 / per_mac_s, memory_bytes_per_s=1 / per_byte_s)
    whole = per_mac_s / INTEGER_SPEED
    rates = LayerRates(*[per_mac_s] * 3, whole, 2 * per_byte_s, per_byte_s)
    measured = replace(estimated, layer_rates=rates)
    seconds = layer_seconds(network, (estimated, measured))
    np.testing.assert_allclose(seconds[:, 1], seconds[:, 0], rtol=1e-9)


@given(networks(), figures, st.floats(1.0, 100.0))
def test_a_slower_device_takes_longer_for_every_layer_by_its_factor(
    network: Network, found: MeasuredFigures, factor: float
) -> None:
    device = with_figures(Device("a"), found)
    seconds = layer_seconds(network, (device, slower(device, factor)))
    np.testing.assert_allclose(seconds[:, 1], factor * seconds[:, 0], rtol=1e-9)


@given(figures, figures)
def test_a_board_whose_figures_are_all_longer_is_priced_longer(
    one: MeasuredFigures, other: MeasuredFigures
) -> None:
    longer = MeasuredFigures(*map(max, asdict(one).values(), asdict(other).values()))
    fast, slow = (with_figures(Device("a"), found) for found in (one, longer))
    for name in ("cut_s_per_byte", "run_s", "firing_s", "wire_s_per_byte", "encode_s_per_byte"):
        if getattr(one, name, 1):  # a figure of 0 is one that was not measured
            assert getattr(slow, name) >= getattr(fast, name) * (1 - 1e-12), name


def convolution(kernel: tuple[int, ...], channels: int = 8, operator: str = "Conv") -> Network:
    tensors = {name: Tensor(name, (1, channels, 4, 4), "float32") for name in ("x", "y")}
    weights = {"w": Tensor("w", kernel, "float32")}
    layer = Layer("c", operator, ("x",), ("y",), ("w",), macs=1000)
    return Network("n", (layer,), tensors, weights, ("x",), ("y",))


@pytest.mark.parametrize(
    ("network", "kind"),
    [
        (convolution((8, 8, 3, 3)), "dense"),
        (convolution((8, 8, 1, 1)), "pointwise"),
        (convolution((8, 8, 1, 3)), "dense"),
        (convolution((8, 1, 3, 3)), "depthwise"),
        (convolution((8, 1, 3, 3), channels=1), "dense"),
        (convolution((8, 4, 3, 3)), "dense"),
        (convolution((8, 8), operator="Gemm"), "pointwise"),
        (convolution((8, 8, 3, 3), operator="ConvTranspose"), "dense"),
        (convolution((8, 8, 3, 3), operator="LSTM"), "dense"),
    ],
    ids=str,
)
def test_a_layer_has_the_kind_of_its_kernel(network: Network, kind: str) -> None:
    assert kind_of(network, network.layers[0]) == kind
    rates = replace(RATES, weight_s_per_byte=1e-30, tensor_s_per_byte=1e-30)
    (seconds,) = layer_seconds(network, (Device("a", layer_rates=rates),))[:, 0]
    assert seconds == pytest.approx(1000 * getattr(rates, f"{kind}_s_per_mac"))


def test_integers_gain_as_much_as_was_measured() -> None:
    network = convolution((8, 8, 3, 3))
    tensors = {name: replace(tensor, dtype="uint8") for name, tensor in network.tensors.items()}
    weights = {"w": replace(network.weights["w"], dtype="int8")}
    rates = replace(RATES, weight_s_per_byte=1e-30, tensor_s_per_byte=1e-30)
    in_8_bits = replace(network, tensors=tensors, weights=weights)
    (seconds,) = layer_seconds(in_8_bits, (Device("a", layer_rates=rates),))[:, 0]
    assert seconds == pytest.approx(1000 * rates.integer_s_per_mac)


def test_a_stated_speed_overrides_a_measured_one() -> None:
    stated = Device("a", macs_per_s=1e9, cut_s_per_byte=1e-9, firing_s=1e-3)
    found = with_figures(stated, FIGURES, own_speed=True)
    assert (found.macs_per_s, found.layer_rates, found.run_s) == (1e9, None, 0.0)
    assert (found.cut_s_per_byte, found.firing_s) == (1e-9, 1e-3)
    assert (found.wire_s_per_message, found.wire_s_per_byte) == (4.5e-5, 1.5e-10)
    assert found.encode_s_per_byte == 2e-9


def test_rates_that_cannot_be_are_refused() -> None:
    with pytest.raises(PartitionError, match="dense_s_per_mac"):
        replace(RATES, dense_s_per_mac=0.0)
