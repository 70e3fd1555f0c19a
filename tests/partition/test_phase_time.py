"""How long phases take: layers, cutting, and fetching what a cache has no room for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from csdf.conversion.from_network import convert
from partition.devices import Device
from partition.prediction.timing import cut_bytes, phase_seconds
from partition.pricing.compute_time import layer_seconds
from tests.partition.networks import chain, residual

NEVER_BUSY = Device("d", macs_per_s=1e30, memory_bytes_per_s=1e30, cut_s_per_byte=0.0)


def test_a_tensor_that_crosses_is_touched_once_more_at_either_end() -> None:
    network = chain(1, 1, elements=1000)
    dataflow = convert(network, {"l0": "a", "l1": "b"})
    assert cut_bytes(dataflow) == {"a/0": 2 * 4000, "b/0": 2 * 4000}
    devices = (Device("a", cut_s_per_byte=1e-6), Device("b", cut_s_per_byte=5e-7))
    layers = layer_seconds(network, devices)
    seconds = phase_seconds(dataflow, devices)
    assert seconds["a/0"] == pytest.approx(layers[0, 0] + 8000 / 1e6)
    assert seconds["b/0"] == pytest.approx(layers[1, 1] + 8000 / 2e6)


def test_a_tensor_to_two_devices_is_converted_once_where_it_is_made() -> None:
    network = replace(residual(1), outputs=("t1", residual(1).outputs[0]))
    made = network.tensors["t1"].bytes
    others = {layer.name: "a" for layer in network.layers}
    together = cut_bytes(convert(network, others))
    apart = cut_bytes(convert(network, others | {"l2": "b"}))
    assert sum(together.values()) == sum(network.tensors[name].bytes for name in ("x", "t1", "t5"))
    assert apart["b/0"] == made + network.tensors["t2"].bytes


def test_each_run_of_a_phase_costs_the_engine_the_same() -> None:
    dataflow = convert(chain(1, 1, 1), {"l0": "d", "l1": "e", "l2": "d"})
    device = replace(NEVER_BUSY, run_s=0.5)
    seconds = phase_seconds(dataflow, [device, replace(device, name="e", run_s=2.0)])
    assert seconds == pytest.approx({"d/0": 0.5, "e/0": 2.0, "d/1": 0.5})


def test_measured_seconds_of_layers_replace_the_estimate() -> None:
    dataflow = convert(chain(1, 1), {"l0": "d", "l1": "d"})
    assert phase_seconds(dataflow, [NEVER_BUSY], np.array([[2.0], [3.0]]))["d/0"] == 5.0


def test_phases_share_the_fetching_of_what_the_cache_has_no_room_for() -> None:
    network = chain(1, 1, 1, weights=[1000, 10, 3000])
    device = replace(NEVER_BUSY, cache_bytes=6000, cache_s_per_byte=1e-3)
    seconds = phase_seconds(
        convert(network, {"l0": "d", "l1": "e", "l2": "d"}), [device, replace(device, name="e")]
    )
    assert seconds == pytest.approx({"d/0": 2.5, "e/0": 0.0, "d/1": 7.5})


def test_a_shared_weight_is_fetched_once() -> None:
    network = chain(1, 1, weights=[1000, 1000])
    first, second = network.layers
    shared = replace(network, layers=(first, replace(second, weights=first.weights)))
    device = replace(NEVER_BUSY, cache_bytes=0, cache_s_per_byte=1e-3)
    seconds = phase_seconds(convert(shared, {"l0": "d", "l1": "d"}), [device])
    assert seconds["d/0"] == pytest.approx(4.0)
