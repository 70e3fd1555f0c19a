"""Counts the times for which a source was lost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

KEPT = 20
"""How many gaps are kept one by one; all are counted."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A source was lost after frame `after_frame`, for that many seconds; `reason` is why."""

    after_frame: int
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Gaps:
    """All gaps of a source; `last` has the last of them."""

    number: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    last: tuple[Gap, ...] = ()


class GapLog:
    """Notes when a source is lost and when it is back; times are in seconds of any clock."""

    def __init__(self) -> None:
        self._lost: tuple[float, int, str] | None = None
        self._number = 0
        self._total_s = self._longest_s = 0.0
        self._last: deque[Gap] = deque(maxlen=KEPT)

    @property
    def gaps(self) -> Gaps:
        """The gaps that have ended."""
        return Gaps(self._number, self._total_s, self._longest_s, tuple(self._last))

    def lost(self, now_s: float, after_frame: int, reason: str) -> None:
        """Begin a gap; nothing if there is one."""
        if self._lost is None:
            self._lost = now_s, after_frame, reason

    def end(self, now_s: float) -> float | None:
        """End the gap: a frame came, or nobody waits for one; return its seconds, None without."""
        if self._lost is None:
            return None
        lost_s, after_frame, reason = self._lost
        self._lost = None
        seconds = now_s - lost_s
        self._number += 1
        self._total_s += seconds
        self._longest_s = max(self._longest_s, seconds)
        self._last.append(Gap(after_frame, seconds, reason))
        return seconds
