"""What is a device's fair share of memory, and a maximum over devices that has a slope.

A search that only sees the busiest device stands still on plateaus, because nothing that the second
busiest gains counts. A generalised mean with a large exponent is almost the maximum and falls with
every device.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partition.devices import Device
from partition.engine_memory import engine_bytes
from partition.traffic import Floats

EXPONENT = 24.0
"""With ten devices, one at the maximum counts 0.91 of it."""


def fair_memory(devices: Sequence[Device]) -> Floats:
    """How much room for tensors each device has, relative to the mean: [devices]."""
    limits = [device.memory_bytes for device in devices]
    largest = max((limit for limit in limits if limit is not None), default=1)
    empty = engine_bytes(1)
    room = np.array([max((limit or largest) - empty, largest / 100) for limit in limits])
    return np.asarray(room / room.mean())


def smooth_maximum(values: Floats, axis: int) -> Floats:
    """The generalised mean of non-negative `values` along `axis`: at most their largest."""
    largest = np.maximum(values.max(axis=axis, keepdims=True), np.finfo(float).tiny)
    mean = ((values / largest) ** EXPONENT).mean(axis=axis, keepdims=True)
    return np.asarray((largest * mean ** (1 / EXPONENT)).squeeze(axis))
