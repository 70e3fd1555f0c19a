"""Transfer times linear in bytes, fitted to measurements.

Velasco-Montero et al. (2023, §III-C, Fig. 6) measured how long tensors of several sizes take to
reach the next processor, found the times to be proportional to the bytes, and put them into the
time of the stage that receives. Here a message may cost something by itself as well, and what is
measured is one of two things: **processor** time of serving the network, which delays a device's
layers, or time on the **wire**, which its link needs beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from partition.devices import Device
from partition.errors import PartitionError


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds for a tensor: `s_per_message` + bytes × `s_per_byte`; `rms_s` is what the
    measurements differ from it by."""

    s_per_message: float
    s_per_byte: float
    rms_s: float

    def seconds(self, size_bytes: int) -> float:
        """Return the seconds for a tensor of `size_bytes`."""
        return self.s_per_message + size_bytes * self.s_per_byte


def fit_transfer(sizes_bytes: Sequence[int], seconds: Sequence[float]) -> Transfer:
    """Fit a line to measurements of one tensor each, by least squares with no part below 0.

    >>> fit_transfer([1000, 2000], [0.002, 0.003]).seconds(3000)
    0.004

    Raises `PartitionError` for fewer than two different sizes and for times that say nothing about
    a byte.
    """
    if len(set(sizes_bytes)) < 2:
        raise PartitionError("transfers of one size only: measure tensors of two sizes at least")
    sizes, times = np.asarray(sizes_bytes, np.float64), np.asarray(seconds, np.float64)
    spread = sizes - sizes.mean()
    slope = float(spread @ times / (spread @ spread))
    fixed = float(times.mean() - slope * sizes.mean())
    if fixed < 0:
        fixed, slope = 0.0, float(sizes @ times / (sizes @ sizes))
    if not slope > 0:
        raise PartitionError(
            "larger tensors took no longer than smaller ones: measure larger ones, or more often"
        )
    left = fixed + slope * sizes - times
    return Transfer(fixed, slope, float(np.sqrt(np.mean(left**2))))


def with_processor_time(device: Device, measured: Transfer) -> Device:
    """Return `device` with the measured processor time of a message and of a byte."""
    return replace(
        device,
        wire_s_per_message=measured.s_per_message,
        wire_s_per_byte=measured.s_per_byte,
    )


def with_wire_time(device: Device, measured: Transfer) -> Device:
    """Return `device` with the measured rate of its link; the time per message is latency, not
    load."""
    return replace(device, link_bytes_per_s=1 / measured.s_per_byte)
