"""What a device's fair share of memory is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partition.devices import Device
from partition.engine_memory import engine_bytes
from partition.traffic import Floats


def fair_memory(devices: Sequence[Device]) -> Floats:
    """What each device has room for beside its engine, relative to the mean: float64 [devices].

    A device without a limit counts like the largest that has one.
    """
    limits = [device.memory_bytes for device in devices]
    largest = max((limit for limit in limits if limit is not None), default=1)
    empty = engine_bytes(1)
    room = np.array([max((limit or largest) - empty, largest / 100) for limit in limits])
    return np.asarray(room / room.mean())
