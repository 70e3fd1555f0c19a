"""Devices that are slower than they were taken for, by measured factors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device


def slowed(
    devices: tuple[Device, ...], layer_s: NDArray[np.float64] | None, factors: Mapping[str, float]
) -> tuple[tuple[Device, ...], NDArray[np.float64] | None]:
    """The devices and seconds of layers [layers, devices] (None: estimates) if what each device
    computes takes `factors` (by name; 1 where none is given) times as long. Links stay as they are,
    and the processor that serves the network beside an accelerator."""
    if not factors:
        return devices, layer_s
    found = tuple(_slowed(device, factors.get(device.name, 1.0)) for device in devices)
    if layer_s is None:
        return found, None
    return found, layer_s * np.array([factors.get(device.name, 1.0) for device in devices])


def _slowed(device: Device, factor: float) -> Device:
    serving = 1.0 if device.wire_is_free else factor
    return replace(
        device,
        macs_per_s=device.macs_per_s / factor,
        memory_bytes_per_s=device.memory_bytes_per_s / factor,
        cut_s_per_byte=device.cut_s_per_byte * factor,
        firing_s=device.firing_s * factor,
        wire_s_per_message=device.wire_s_per_message * serving,
        wire_s_per_byte=device.wire_s_per_byte * serving,
    )
