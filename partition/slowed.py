"""Devices that are slower than they were taken for, by measured factors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device, slower


def slowed(
    devices: tuple[Device, ...], layer_s: NDArray[np.float64] | None, factors: Mapping[str, float]
) -> tuple[tuple[Device, ...], NDArray[np.float64] | None]:
    """The devices and seconds of layers [layers, devices] (None: estimates) if what each device
    computes takes `factors` (by name; 1 where none is given) times as long (`slower`)."""
    if not factors:
        return devices, layer_s
    found = tuple(slower(device, factors.get(device.name, 1.0)) for device in devices)
    if layer_s is None:
        return found, None
    return found, layer_s * np.array([factors.get(device.name, 1.0) for device in devices])
