"""Counts the frames that a program pushes into a stream, until the program ends the stream.

The number of frames need not be known in advance: a camera runs until it is switched off, and a
program pushes frames while it runs. A frame that was pushed waits until it is sent, or is withdrawn
before that; one that was sent is never withdrawn. The program bounds how many frames wait.
"""

from __future__ import annotations

ENDLESS = 1 << 62
"""The number of frames of a stream while it is not known: more than any run streams."""


class Intake:
    """The frames of one stream. `frames` is an upper bound, and exact after `end`.

    It does not count frames that were withdrawn.
    """

    def __init__(self, frames: int = ENDLESS) -> None:
        self.frames = frames
        self.withdrawn = 0
        self._pushed = 0
        self._next = 0

    def push(self, frames: int) -> None:
        """`frames` in all have been pushed so far."""
        self._pushed = frames

    def end(self) -> None:
        """No frame comes after those that were pushed."""
        self.frames = self.offered

    @property
    def waiting(self) -> int | None:
        """The next frame to send, if there is one."""
        return self._next if self._next < self._pushed else None

    @property
    def offered(self) -> int:
        """The number of frames to send so far, without those withdrawn."""
        return self._pushed - self.withdrawn

    def take(self) -> int:
        """Note that the waiting frame is sent."""
        self._next += 1
        return self._next - 1

    def withdraw(self) -> None:
        """Note that the waiting frame is not to be sent."""
        self._next += 1
        self.withdrawn += 1
        if self.frames != ENDLESS:
            self.frames -= 1
