"""Seconds of a firing against the number of frames that it computes, from a few measured batches.

An engine fetches a layer's weights once per firing and computes each frame by itself, so a firing
takes a fixed part and a part per frame. Both change where a batch outgrows a cache. A curve is
therefore its measured points: between two of them it is the line through both, and beyond the last
one the line through the last two.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Point = tuple[int, float]
"""(frames, seconds): the time that a firing of that number of frames took."""


def seconds_at(points: Sequence[Point], frames: int) -> float:
    """Return the seconds of a firing of `frames` frames; `points` is not empty.

    From a single point, and beyond points of which more frames took no longer, seconds are
    proportional to frames.

    >>> seconds_at([(1, 0.5), (3, 1.0)], 2)
    0.75
    >>> seconds_at([(1, 0.5), (3, 1.0)], 5)
    1.5
    >>> seconds_at([(1, 0.5)], 8)
    4.0
    """
    known = sorted(points)
    for (less, less_s), (more, more_s) in pairwise(known):
        if frames <= more:
            return less_s + (more_s - less_s) * (frames - less) / (more - less)
    last, last_s = known[-1]
    if len(known) > 1:
        before, before_s = known[-2]
        slope_s = (last_s - before_s) / (last - before)
        if slope_s > 0:
            return last_s + slope_s * (frames - last)
    return last_s * frames / last
