"""Records which results of a stream arrived, how often, when, and whether they are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from benchmarks.comparison import TOLERANCE, worst_of
from nodes.protocol.payload import Array


class Ledger:
    """Takes results as `on_result` does; frame i carries the input i modulo the number of distinct
    ones, whose results by the whole model are `expected`."""

    def __init__(self, expected: Sequence[Mapping[str, Array]]) -> None:
        self._expected = expected
        self._came: dict[int, float] = {}
        self._last = -1
        self.doubled = 0
        self.wrong = 0
        self.out_of_order = 0

    def take(self, frame: int, outputs: Mapping[str, Array], now_s: float) -> None:
        """A result, at this time (monotonic clock)."""
        if frame in self._came:
            self.doubled += 1
            return
        self.out_of_order += frame != self._last + 1
        self._last = frame
        self._came[frame] = now_s
        self.wrong += not agree(outputs, self._expected[frame % len(self._expected)])

    @property
    def results(self) -> int:
        """Frames that have one."""
        return len(self._came)

    def lost(self, frames: int) -> int:
        """Of so many frames, those without a result."""
        return frames - sum(frame in self._came for frame in range(frames))

    @property
    def next_frame(self) -> int:
        """The one after the last that came."""
        return self._last + 1

    def came_s(self, frame: int) -> float | None:
        """When its result came."""
        return self._came.get(frame)

    def longest_pause_s(self, since_s: float) -> float:
        """The longest time without a result that did not end before `since_s`."""
        times = sorted(self._came.values())
        return max((now - before for before, now in pairwise(times) if now >= since_s), default=0.0)


def agree(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> bool:
    """Whether all outputs are what the whole model makes, within `TOLERANCE`."""
    if outputs.keys() != expected.keys():
        return False
    return worst_of((outputs[name], expected[name]) for name in expected) <= TOLERANCE
