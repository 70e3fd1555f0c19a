"""How much memory each device has for its part of a network, absolutely and as a fair share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from partition.devices import Device
from partition.prediction.engine_memory import engine_bytes
from partition.pricing.traffic import Floats


def room_bytes(devices: Sequence[Device]) -> Floats:
    """Return each device's memory limit in bytes: float64 [devices].

    A device without a limit counts as one with the largest limit of all; where none has a limit,
    each has room for one byte, so that shares of the room are bytes.

    >>> room_bytes([Device("a", memory_bytes=2_000), Device("b"), Device("c", 1_000)])
    array([2000., 2000., 1000.])
    """
    limits = [device.memory_bytes for device in devices]
    largest = max((limit for limit in limits if limit is not None), default=1)
    return np.array([largest if limit is None else limit for limit in limits], dtype=np.float64)


def fair_memory(devices: Sequence[Device]) -> Floats:
    """Return each device's room beside its engine, relative to the mean: float64 [devices].

    >>> fair_memory([Device("a"), Device("b")])
    array([1., 1.])
    """
    limits = room_bytes(devices)
    room = np.maximum(limits - engine_bytes(1), limits.max() / 100)
    return np.asarray(room / room.mean())
