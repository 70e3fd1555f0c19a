"""What the source offers: frames as fast as they are wanted, or at a pace of its own.

A source with a pace does not wait by itself, as a camera does not. Its frames queue for the stream,
and the queue is bounded. What happens to a frame that finds it full is for the user to say:

- `block`: the source waits for a place, and its clock with it; no frame is lost.
- `drop-oldest`: the frame that has waited longest makes way, so that what is computed is fresh.
- `drop-newest`: the new frame is dropped, so that what has begun to wait is computed.

A frame that was sent is never dropped. Frames keep the numbers that the source gave them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

Overload = Literal["block", "drop-oldest", "drop-newest"]


@dataclass(frozen=True, slots=True)
class Pace:
    """`rate` frames per second, of which at most `queue_frames` wait; then `on_overload` holds."""

    rate: float
    on_overload: Overload = "block"
    queue_frames: int = 8


class Intake:
    """The source's `frames` frames, at a `pace` or, without one, each as soon as it is asked for.

    Time (`now_s`, seconds of any steady clock) counts from `begin` on. After `advance`, `waiting`
    is the frame that may be sent now.
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
        """The source begins, if it has not yet: its first frame is there."""
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
        """Take in all frames that have arrived by now; returns those that were dropped."""
        dropped: list[int] = []
        while self.pace is not None and (due_s := self.due_s) is not None and due_s <= now_s:
            if self._is_blocked:  # there is room again: the source's clock goes on from here
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
        """The frame that is sent next, if there is one."""
        if self.pace is not None:
            return self._queue[0] if self._queue else None
        return self._arrived if self._arrived < self.frames else None

    @property
    def offered(self) -> int:
        """How many frames there were to send so far, those sent included and those dropped not."""
        return self.frames if self.pace is None else self._arrived - self.dropped

    def take(self) -> int:
        """The waiting frame is sent."""
        if self.pace is not None:
            return self._queue.popleft()
        self._arrived += 1
        return self._arrived - 1
