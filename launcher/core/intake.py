"""Queues the source's frames for the stream, and drops some if the source is faster.

A source without a pace offers each frame as soon as it is needed. One with a pace, as a camera has,
makes frames at fixed times; they wait in a bounded queue. The user chooses what happens to a frame
that finds the queue full:

- `block`: the source waits for a place, and its clock stands still; no frame is lost.
- `drop-oldest`: the frame that has waited longest is dropped, so that recent frames are computed.
- `drop-newest`: the new frame is dropped, so that the frames in the queue are computed.

A frame that was sent is never dropped. Frames keep the numbers that the source gave them.

A program that pushes frames is a source whose number of frames nobody knows until it ends
(`PushedIntake`). It bounds what waits itself.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

ENDLESS = 1 << 62
"""The number of frames of a stream while nobody knows it: more than any run streams."""

Overload = Literal["block", "drop-oldest", "drop-newest"]


@dataclass(frozen=True, slots=True)
class Pace:
    """A source's `rate` in frames per second; at most `queue_frames` frames wait, and
    `on_overload` says what happens to more."""

    rate: float
    on_overload: Overload = "block"
    queue_frames: int = 8


class Intake:
    """The source's `frames` frames, at a `pace` or, without one, each as soon as it is needed.

    Time (`now_s`, seconds of any monotonic clock) counts from `begin` on. After `advance`,
    `waiting` is the frame that may be sent now.
    """

    def __init__(self, frames: int, pace: Pace | None = None) -> None:
        self.frames = frames
        self.pace = pace
        self.dropped = 0
        self._arrived = 0
        self._queue: deque[int] = deque()
        self._began_s: float | None = None
        self._began_at = 0
        self._is_blocked = False

    def begin(self, now_s: float) -> None:
        """Start the source, which offers its first frame now; has no effect the second time."""
        if self._began_s is None:
            self._began_s = now_s

    @property
    def due_s(self) -> float | None:
        """When the next frame arrives; None if none does, or if that is unknown."""
        if self.pace is None or self._began_s is None or self._arrived == self.frames:
            return None
        if self._is_blocked and self._is_full(self.pace):
            return None
        return self._began_s + (self._arrived - self._began_at) / self.pace.rate

    def _is_full(self, pace: Pace) -> bool:
        return len(self._queue) >= pace.queue_frames

    def advance(self, now_s: float) -> list[int]:
        """Queue all frames that have arrived by `now_s`; return those that were dropped."""
        dropped: list[int] = []
        while self.pace is not None and (due_s := self.due_s) is not None and due_s <= now_s:
            if self._is_blocked:  # a place is free again: the source's clock goes on from here
                self._is_blocked = False
                self._began_s, self._began_at = now_s, self._arrived
            if self._is_full(self.pace):
                if self.pace.on_overload == "block":
                    self._is_blocked = True
                    break
                if self.pace.on_overload == "drop-newest":
                    dropped.append(self._arrived)
                    self._arrived += 1
                    continue
                dropped.append(self._queue.popleft())
            self._queue.append(self._arrived)
            self._arrived += 1
        self.dropped += len(dropped)
        return dropped

    @property
    def waiting(self) -> int | None:
        """The frame to send next; None if there is none now."""
        if self.pace is not None:
            return self._queue[0] if self._queue else None
        return self._arrived if self._arrived < self.frames else None

    @property
    def offered(self) -> int:
        """How many frames the source has offered so far, without those dropped."""
        return self.frames if self.pace is None else self._arrived - self.dropped

    def take(self) -> int:
        """Remove the waiting frame, which is sent now, and return its number."""
        if self.pace is not None:
            return self._queue.popleft()
        self._arrived += 1
        return self._arrived - 1


class PushedIntake:
    """Frames that a program pushes, one by one, until it ends the stream; else as `Intake`.

    `frames` is `ENDLESS` before `end`, and afterwards how many were pushed, without those that were
    withdrawn before they were sent.
    """

    pace = None
    due_s = None

    def __init__(self) -> None:
        self.frames = ENDLESS
        self.dropped = 0
        self._pushed = 0
        self._next = 0

    def begin(self, _now_s: float) -> None:
        """Nothing: no clock runs."""

    def advance(self, _now_s: float) -> list[int]:
        """Nothing: frames come by `push`."""
        return []

    def push(self, frames: int) -> None:
        """`frames` in all have been pushed so far."""
        self._pushed = frames

    def end(self) -> None:
        """No frame comes after those that were pushed."""
        self.frames = self.offered

    @property
    def waiting(self) -> int | None:
        """The frame that is sent next, if there is one."""
        return self._next if self._next < self._pushed else None

    @property
    def offered(self) -> int:
        """How many frames there were to send so far, those withdrawn excepted."""
        return self._pushed - self.dropped

    def take(self) -> int:
        """The waiting frame is sent."""
        self._next += 1
        return self._next - 1

    def withdraw(self) -> None:
        """The waiting frame is not to be sent."""
        self._next += 1
        self.dropped += 1
        if self.frames != ENDLESS:
            self.frames -= 1
