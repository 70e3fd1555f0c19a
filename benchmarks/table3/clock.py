"""Estimates how long a table still takes."""

from __future__ import annotations

import time


class Clock:
    """How long a table still takes: first by a guess, then by the turns that were done."""

    def __init__(self, guess_s: float, turns: int) -> None:
        self._began_s = time.monotonic()
        self._guess_s, self._turns, self._done = guess_s, turns, 0

    def done(self) -> None:
        """One more turn."""
        self._done += 1

    @property
    def spent_s(self) -> float:
        """Since it was made."""
        return time.monotonic() - self._began_s

    @property
    def turn_s(self) -> float:
        """One turn, its share of what a group takes included."""
        return self.spent_s / self._done if self._done else self._guess_s / max(1, self._turns)

    @property
    def left_s(self) -> float:
        """Until all is done."""
        return (self._turns - self._done) * self.turn_s
