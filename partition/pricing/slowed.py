"""Devices that turned out slower than assumed, by measured factors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device, slower


def slowed(
    devices: tuple[Device, ...], layer_s: NDArray[np.float64] | None, factors: Mapping[str, float]
) -> tuple[tuple[Device, ...], NDArray[np.float64] | None]:
    """Return the devices, and their seconds of layers, as if each took its factor times as long.

    `factors` are by device name, 1 where none is given; `layer_s` [layers, devices] is None for
    estimates. See `partition.devices.slower`.
    """
    if not factors:
        return devices, layer_s
    found = tuple(slower(device, factors.get(device.name, 1.0)) for device in devices)
    if layer_s is None:
        return found, None
    return found, layer_s * np.array([factors.get(device.name, 1.0) for device in devices])
