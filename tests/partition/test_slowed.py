"""Devices that turned out slower than they were taken for."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from partition.devices import Device
from partition.pricing.compute_time import slowed

SLOWER = {
    "macs_per_s": 0.5,
    "memory_bytes_per_s": 0.5,
    "cut_s_per_byte": 2.0,
    "run_s": 2.0,
    "firing_s": 2.0,
    "wire_s_per_message": 2.0,
    "wire_s_per_byte": 2.0,
    "encode_s_per_byte": 2.0,
}
"""What changes of a processor that takes twice as long, and by what factor."""


def changes(before: Device, after: Device) -> dict[str, float]:
    pairs = {
        one.name: (getattr(before, one.name), getattr(after, one.name)) for one in fields(Device)
    }
    return {name: new / old for name, (old, new) in pairs.items() if new != old}


def test_a_slower_processor_is_slower_at_all_that_it_does() -> None:
    devices = (Device("a"), Device("b", run_s=1e-4))
    found, layer_s = slowed(devices, np.ones((3, 2)), {"b": 2.0})
    assert found[0] == devices[0]
    assert changes(devices[1], found[1]) == SLOWER
    assert layer_s is not None
    assert layer_s.tolist() == [[1.0, 2.0]] * 3


def test_a_slower_accelerator_leaves_the_processor_that_serves_the_network_as_it_is() -> None:
    device = Device("a", run_s=1e-4, wire_is_free=True)
    (found,), _ = slowed((device,), None, {"a": 2.0})
    assert changes(device, found) == {
        cost: factor for cost, factor in SLOWER.items() if not cost.startswith(("wire", "encode"))
    }


def test_nothing_changes_where_nothing_was_measured() -> None:
    devices = (Device("a"),)
    assert slowed(devices, None, {}) == (devices, None)
