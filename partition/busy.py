"""What keeps a device's processor busy per frame; every cost of it in this project is one of these.

    phases_s = seconds of its layers
             + bytes that its phases read from or write to outside × `cut_s_per_byte`
             + bytes of weights that its cache has no room for     × `cache_s_per_byte`
    busy_s   = phases_s + phases × `firing_s`
             + messages × `message_s` + bytes moved × `byte_s`     (the wire, unless it is free)

The figures may be those of one device, or columns [devices, 1] of several: then whole populations
of assignments are priced at once. `cut_s` and `message_s_of` are the same as coefficients of single
tensors, for models that are linear in their decisions (`partition.strategies.exact_loads`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from partition.devices import Device
from partition.traffic import Floats

Figure = TypeVar("Figure", float, Floats)


@dataclass(frozen=True, slots=True)
class Rates(Generic[Figure]):
    """See the module's docstring; `message_s` and `byte_s` are 0 where the wire is free."""

    firing_s: Figure
    cut_s_per_byte: Figure
    cache_s_per_byte: Figure
    message_s: Figure
    byte_s: Figure

    def phases_s(self, layer_s: Figure, cut_bytes: Figure, uncached_bytes: Figure) -> Figure:
        """What the phases take."""
        cut = cut_bytes * self.cut_s_per_byte
        return layer_s + uncached_bytes * self.cache_s_per_byte + cut

    def busy_s(
        self, phases_s: Figure, phases: Figure, messages: Figure, moved_bytes: Figure
    ) -> Figure:
        """And what firing them and serving the wire takes besides."""
        wire = messages * self.message_s + moved_bytes * self.byte_s
        return phases_s + phases * self.firing_s + wire

    def cut_s(self, size_bytes: float) -> Figure:
        """What reading or writing a tensor across the border of a phase takes."""
        return size_bytes * self.cut_s_per_byte

    def message_s_of(self, size_bytes: float) -> Figure:
        """What sending or receiving a tensor takes the processor."""
        return self.message_s + size_bytes * self.byte_s


def rates_of(device: Device) -> Rates[float]:
    """The figures of one device."""
    serves = 0.0 if device.wire_is_free else 1.0
    return Rates(
        device.firing_s,
        device.cut_s_per_byte,
        device.cache_s_per_byte,
        serves * device.wire_s_per_message,
        serves * device.wire_s_per_byte,
    )


def rate_columns(devices: Sequence[Device]) -> Rates[Floats]:
    """The figures of several, each a column [devices, 1]."""
    each = [rates_of(device) for device in devices]
    return Rates(
        np.array([[rates.firing_s] for rates in each]),
        np.array([[rates.cut_s_per_byte] for rates in each]),
        np.array([[rates.cache_s_per_byte] for rates in each]),
        np.array([[rates.message_s] for rates in each]),
        np.array([[rates.byte_s] for rates in each]),
    )
