"""The linear model of how long a device takes for a batch of frames, and fair dealing by it.

Two measured batch sizes determine the line. Dealing a batch out to several devices so that the last
of them is done as early as possible is then exact: frame after frame goes to the device that would
be done with it first.

Source: Vanishree et al., "CoIn: Accelerated CNN Co-Inference through data partitioning on
heterogeneous devices", ICACCS 2020, whose ratio of shares this is if the fixed parts vanish.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from partition.errors import PartitionError


@dataclass(frozen=True, slots=True)
class LinearTime:
    """Seconds for b frames: `fixed_s` + b × `frame_s`, none for no frame."""

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


def deal_frames(
    devices: Sequence[LinearTime], frames: int, most: Sequence[int | None] | None = None
) -> tuple[int, ...]:
    """Return how many of `frames` frames each device gets so that the last is done as soon as can
    be.

    >>> deal_frames([LinearTime(0, 1.0), LinearTime(0, 3.0)], 4)
    (3, 1)

    `most` bounds what a device can take at once for want of memory (None: no bound); what is left
    over goes to the others. Raises `PartitionError` if all together cannot take that many.
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
