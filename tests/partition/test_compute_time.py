"""The analytic estimate of layers' times: arithmetic and bytes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cnn.network import Layer, Network
from partition.devices import Device
from partition.pricing.compute_time import INTEGER_SPEED, fused_layers, layer_seconds
from tests.partition.networks import chain

DEVICE = Device("d", macs_per_s=1e9, memory_bytes_per_s=1e6)


TINY = 1e-4
"""Seconds that tensors of a few elements take on this device at most."""


def test_a_layer_takes_its_arithmetic_and_its_memory_traffic() -> None:
    network = chain(10**6, elements=1000)
    touched = 4 * (1000 + 1000)
    assert layer_seconds(network, [DEVICE])[0, 0] == pytest.approx(1e-3 + touched / 1e6)


def test_weights_count_twice() -> None:
    """They come from memory, where the tensors before and behind a layer are often in caches."""
    network = chain(10**9, weights=[10**6])
    assert layer_seconds(network, [DEVICE])[0, 0] == pytest.approx(1.0 + 2 * 4.0, abs=TINY)


def test_an_activation_is_computed_with_the_convolution_before_it() -> None:
    network = _with_operators(chain(10**9, 0, 0), "Conv", "Relu", "Relu")
    assert fused_layers(network) == {"l1", "l2"}
    assert layer_seconds(network, [DEVICE])[:, 0] == pytest.approx([1.0, 0.0, 0.0], abs=TINY)


def test_not_so_if_the_convolutions_own_result_is_read_as_well() -> None:
    network = _with_operators(chain(10**9, 0), "Conv", "Relu")
    assert not fused_layers(replace(network, outputs=("t1", "t2")))


def test_nor_after_other_operators() -> None:
    assert not fused_layers(_with_operators(chain(0, 0), "MaxPool", "Relu"))


def test_powers_take_long() -> None:
    network = _with_operators(chain(0, elements=1000), "LRN")
    device = replace(DEVICE, memory_bytes_per_s=1e9)
    assert layer_seconds(network, [device])[0, 0] == pytest.approx(1000 * 1300 / 1e9, rel=0.01)


def test_nor_where_8_bits_lie_between_the_two() -> None:
    network = _in_8_bits(_with_operators(chain(10**9, 0), "Conv", "Relu"))
    assert not fused_layers(network)


def test_integers_are_multiplied_faster() -> None:
    network = _in_8_bits(_with_operators(chain(10**9), "Conv"))
    assert layer_seconds(network, [DEVICE])[0, 0] == pytest.approx(1.0 / INTEGER_SPEED, abs=TINY)


def test_a_layer_that_makes_floats_of_8_bits_multiplies_floats() -> None:
    network = _in_8_bits(_with_operators(chain(10**9), "Conv"), "t0")
    assert layer_seconds(network, [DEVICE])[0, 0] == pytest.approx(1.0, abs=TINY)


def test_an_element_of_8_bits_takes_as_long_as_one_of_32() -> None:
    network = _with_operators(chain(0, elements=1000), "Add")
    in_8_bits = layer_seconds(_in_8_bits(network), [DEVICE])
    assert in_8_bits[0, 0] == pytest.approx(layer_seconds(network, [DEVICE])[0, 0])


def _in_8_bits(network: Network, *names: str) -> Network:
    """The network with these tensors in 8 bits, or with all."""
    wanted = names or network.tensors
    tensors = {
        name: replace(tensor, dtype="uint8") if name in wanted else tensor
        for name, tensor in network.tensors.items()
    }
    return replace(network, tensors=tensors)


def _with_operators(network: Network, *operators: str) -> Network:
    layers = zip(network.layers, operators, strict=True)
    return replace(network, layers=tuple(replace(each, operator=name) for each, name in layers))


def test_a_view_takes_no_time() -> None:
    network = chain(0)
    view = replace(network, layers=(Layer("l0", "Reshape", ("t0",), ("t1",)),), weights={})
    assert layer_seconds(view, [DEVICE])[0, 0] == 0


def test_cutting_a_region_out_touches_that_region_only() -> None:
    network = chain(0, elements=1000)
    small = replace(network.tensors["t1"], shape=(10,))
    cut = replace(
        network,
        layers=(Layer("l0", "Slice", ("t0",), ("t1",)),),
        tensors={**network.tensors, "t1": small},
        weights={},
    )
    assert layer_seconds(cut, [DEVICE])[0, 0] == pytest.approx(2 * 4 * 10 / 1e6)


def test_each_device_has_its_own_column() -> None:
    fast = replace(DEVICE, name="fast", macs_per_s=4e9)
    seconds = layer_seconds(chain(10**9), [DEVICE, fast])
    assert seconds.shape == (1, 2)
    assert seconds[0, 0] == pytest.approx(4 * seconds[0, 1], rel=1e-3)
