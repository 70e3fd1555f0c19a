"""Linear models of measured times: of a batch of frames on a device, and of a transfer.

**Batches.** Two measured batch sizes determine a line. `deal_frames` then deals a batch out to
several devices so that the last of them is done as early as possible: each frame goes to the device
that would be done with it first. `deal_by_ratio` deals it out by Eq. 1 of Vanishree et al., "CoIn:
Accelerated CNN Co-Inference through data partitioning on heterogeneous devices", ICACCS 2020: in
inverse proportion to the devices' times for the whole batch. If the fixed parts vanish, both give
the same shares. Otherwise Eq. 1 gives a device with a large fixed part too many frames, because
that part does not shrink with the device's share.

**Transfers.** Velasco-Montero et al. (2023, §III-C, Fig. 6) found the time in which a tensor
reaches the next processor to be proportional to its bytes, and added it to the time of the
receiving stage. Here a message may also have a fixed cost. Measurements are of **processor** time,
which delays a device's layers, or of time on the **wire**, which the link needs in addition.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError


@dataclass(frozen=True, slots=True)
class Transfer:
    """Seconds for a tensor: `s_per_message` + bytes × `s_per_byte`.

    `rms_s` is the root mean square of the deviations of the measurements.
    """

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
        raise PartitionError("transfers of one size only: measure tensors of at least two sizes")
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


@dataclass(frozen=True, slots=True)
class LinearTime:
    """Seconds for b frames: `fixed_s` + b × `frame_s`; 0 for no frame."""

    fixed_s: float
    frame_s: float

    def seconds(self, frames: int) -> float:
        """Return the seconds for a batch of `frames` frames.

        >>> LinearTime(fixed_s=0.5, frame_s=0.1).seconds(5)
        1.0
        """
        return self.fixed_s + frames * self.frame_s if frames else 0.0


def fit(few: tuple[int, float], many: tuple[int, float]) -> LinearTime:
    """Return the line through two measurements (frames, seconds).

    Raises `PartitionError` if more frames took no longer than fewer ones. A negative fixed part is
    noise and counts as 0.

    >>> fit((1, 0.6), (5, 1.0))
    LinearTime(fixed_s=0.5, frame_s=0.1)
    """
    (less, less_s), (more, more_s) = sorted([few, many])
    if less < 1 or less == more:
        raise PartitionError(f"batches of {less} and {more} frames: measure two different sizes")
    if more_s <= less_s:
        raise PartitionError(
            f"{more} frames took {more_s:.4g} s and {less} frames {less_s:.4g} s: measure longer "
            "batches"
        )
    frame_s = (more_s - less_s) / (more - less)
    if less_s < less * frame_s:
        return LinearTime(0.0, more_s / more)
    return LinearTime(less_s - less * frame_s, frame_s)


def batch_ratio(devices: Sequence[LinearTime], frames: int) -> NDArray[np.float64]:
    """Return the shares of a batch by Eq. 1 of Vanishree et al. (2020): [devices], their sum is 1.

    >>> batch_ratio([LinearTime(0.0, 1.0), LinearTime(0.0, 3.0)], 100)
    array([0.75, 0.25])
    """
    speeds = 1 / np.array([device.seconds(frames) for device in devices])
    return np.asarray(speeds / speeds.sum())


def deal_by_ratio(
    devices: Sequence[LinearTime], frames: int, most: Sequence[int | None] | None = None
) -> tuple[int, ...]:
    """Return how many of `frames` frames each device gets by Eq. 1 of Vanishree et al. (2020).

    >>> deal_by_ratio([LinearTime(0, 1 / 36), LinearTime(0, 1 / 27), LinearTime(0, 1 / 37)], 100)
    (36, 27, 37)

    What exceeds a device's `most` frames is dealt out to the others in the same proportions
    (re-balancing). Whole frames are dealt by largest remainder. Raises `PartitionError` if all
    devices together cannot take that many.
    """
    given = [None] * len(devices) if most is None else most
    bounds = [frames if bound is None else min(bound, frames) for bound in given]
    if sum(bounds) < frames:
        raise PartitionError(f"the devices' memory does not hold {frames} frames at once")
    ratio = batch_ratio(devices, max(frames, 1))
    dealt = np.zeros(len(devices), dtype=np.int64)
    room = np.array(bounds, dtype=np.int64)
    left = frames
    while left:
        open_ratio = np.where(room > dealt, ratio, 0.0)
        exact = left * open_ratio / open_ratio.sum()
        whole = np.floor(exact + 1e-9).astype(np.int64)
        by_remainder = np.argsort(-(exact - whole), kind="stable")
        whole[by_remainder[: left - int(whole.sum())]] += 1
        dealt = np.minimum(dealt + whole, room)
        left = frames - int(dealt.sum())
    return tuple(dealt.tolist())


def deal_frames(
    devices: Sequence[LinearTime], frames: int, most: Sequence[int | None] | None = None
) -> tuple[int, ...]:
    """Return how many of `frames` frames each device gets so that the last device ends as early as
    possible.

    >>> deal_frames([LinearTime(0, 1.0), LinearTime(0, 3.0)], 4)
    (3, 1)

    `most` bounds the frames that a device's memory can hold at once (None: no bound); the others
    get the rest. Raises `PartitionError` if all devices together cannot take that many.
    """
    bounds = [None] * len(devices) if most is None else list(most)
    dealt = [0] * len(devices)
    ready = [
        (device.seconds(1), number)
        for number, device in enumerate(devices)
        if bounds[number] is None or bounds[number]
    ]
    heapq.heapify(ready)
    for _ in range(frames):
        if not ready:
            raise PartitionError(f"the devices' memory does not hold {frames} frames at once")
        _, number = heapq.heappop(ready)
        dealt[number] += 1
        bound = bounds[number]
        if bound is None or dealt[number] < bound:
            heapq.heappush(ready, (devices[number].seconds(dealt[number] + 1), number))
    return tuple(dealt)
