"""Says at which rate a source makes frames, and what happens to what finds a queue full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Overload = Literal["block", "drop-oldest", "drop-newest"]
"""The rule of `launcher.streaming.overload` for a full queue."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A source's `rate` in frames per second; at most `queue_frames` frames wait, and
    `on_overload` says what happens to more."""

    rate: float
    on_overload: Overload = "block"
    queue_frames: int = 8
