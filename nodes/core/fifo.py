"""The two ends of a bounded FIFO: an `Outlet` that holds credits, an `Inlet` that holds tokens.

The consumer grants as many credits as it has places. A producer claims one at the start of a firing
and sends the frame at its end; a place becomes free, and its credit goes back, when the last reader
of that frame has ended. This is the bounded channel of CSDF (a reverse channel that starts with
`capacity` tokens), so at any moment

    credits + claimed + in sockets + held by the consumer + credits on their way back = capacity

and neither end can have more than `capacity` of anything. A peer that violates this causes a
`RemoteProtocolError`, a bug on this side a `LocalProtocolError`.

Channels of long tensors between nodes have `unsent` separate places at the producer. A firing
claims one of these, its frame waits there for a credit, and the place is free again when the frame
has left. So a frame occupies a place of the consumer from when it is sent, not from the start of
the firing that makes it, and the two ends together hold `unsent` + `capacity` frames.

A channel within one node is an `Outlet` and an `Inlet` that are joined by calls, not by sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError


class HeldBytes:
    """Counts the bytes that the FIFOs into a node hold, now and at most so far.

    `channels` maps a channel's number to its number of readers. A frame is
    held from its arrival, or from the end of the firing that made it on the same node, until the
    last of its readers has ended. A frame that waits to be sent counts at its receiver only.
    """

    def __init__(self, channels: Mapping[int, int]) -> None:
        self.now_bytes = 0
        self.peak_bytes = 0
        self._frames: dict[int, deque[int]] = {number: deque() for number in channels}
        self._ended = {number: [0] * readers for number, readers in channels.items()}

    def put(self, number: int, size_bytes: int) -> None:
        """Count one more frame of the channel, which has `size_bytes` bytes."""
        self._frames[number].append(size_bytes)
        self.now_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)

    def read(self, number: int, reader: int) -> None:
        """Note that a reader of the channel has ended with its next frame."""
        ended = self._ended[number]
        slowest = min(ended)
        ended[reader] += 1
        if min(ended) > slowest:
            self.now_bytes -= self._frames[number].popleft()


class Outlet:
    """The producer's end: which frames may be claimed, which are still to be sent.

    Its state is four counters: all credits `granted`, and all frames `claimed`, `sent` and `left`
    so far, with 0 ≤ left ≤ sent ≤ claimed and sent ≤ granted ≤ sent + capacity. Without places for
    `unsent` frames, claimed ≤ granted, and `left` is not counted; with them, claimed ≤ left +
    unsent.
    """

    __slots__ = ("capacity", "claimed", "granted", "left", "number", "sent", "unsent")

    def __init__(self, number: int, capacity: int, unsent: int = 0) -> None:
        if capacity < 1 or unsent < 0:
            raise LocalProtocolError(
                f"channel {number}: a capacity of {capacity} frames, {unsent} of them unsent"
            )
        self.number = number
        self.capacity = capacity
        self.unsent = unsent
        self.granted = 0
        self.claimed = 0
        self.sent = 0
        self.left = 0

    @property
    def places(self) -> int:
        """The number of frames that may be claimed now."""
        return (self.left + self.unsent if self.unsent else self.granted) - self.claimed

    @property
    def held(self) -> int:
        """The frames of the channel that exist: claimed, and their credits have not come back."""
        return self.claimed - max(0, self.granted - self.capacity)

    @property
    def may_send(self) -> bool:
        """Whether there is a credit for the next frame that is sent."""
        return self.sent < self.granted

    def grant(self, frames: int) -> None:
        """Add `frames` credits; raises `RemoteProtocolError` if they exceed the capacity."""
        granted = self.granted + frames
        if frames < 1 or granted > self.sent + self.capacity:
            raise RemoteProtocolError(
                f"channel {self.number}: {frames} credits granted, {self.granted} had been; "
                f"{self.sent} frames were sent and the capacity is {self.capacity}"
            )
        self.granted = granted

    def claim(self) -> int:
        """Take a place for the next frame, and return the frame's number."""
        if self.places <= 0:
            raise LocalProtocolError(
                f"channel {self.number}: frame {self.claimed} claimed without a place for it"
            )
        frame = self.claimed
        self.claimed += 1
        return frame

    def send(self) -> int:
        """Note that the oldest frame which is not sent is, and return its number."""
        if self.sent >= self.claimed:
            raise LocalProtocolError(
                f"channel {self.number}: frame {self.sent} sent without having been claimed"
            )
        if self.sent >= self.granted:
            raise LocalProtocolError(
                f"channel {self.number}: frame {self.sent} sent without a credit"
            )
        frame = self.sent
        self.sent += 1
        return frame

    def leave(self) -> None:
        """Note that the memory of a frame that was sent is free, which frees its place."""
        if self.left >= self.sent:
            raise LocalProtocolError(
                f"channel {self.number}: more frames have left than were sent ({self.sent})"
            )
        self.left += 1


class Inlet:
    """The consumer's end: the frames that arrived, and how far each of its readers is.

    Each reader reads the frames 0, 1, 2, … once and in order, at its own pace. With `ended[r]` the
    number of frames that reader r has ended with, and `freed` their least number over all readers:
    freed ≤ ended[r] ≤ arrived ≤ freed + capacity.
    """

    __slots__ = ("_ended", "_tokens", "arrived", "capacity", "freed", "number")

    def __init__(self, number: int, capacity: int, readers: int = 1) -> None:
        if capacity < 1 or readers < 1:
            raise LocalProtocolError(
                f"channel {number}: a capacity of {capacity} frames and {readers} readers"
            )
        self.number = number
        self.capacity = capacity
        self.arrived = 0
        self.freed = 0
        self._ended = [0] * readers
        self._tokens: deque[object] = deque()

    @property
    def held(self) -> int:
        """The number of frames that have arrived and that some reader has not ended with."""
        return self.arrived - self.freed

    def put(self, frame: int, token: object) -> None:
        """Add a frame; raises `RemoteProtocolError` if it is out of order or has no free place."""
        if frame != self.arrived:
            raise RemoteProtocolError(
                f"channel {self.number}: frame {frame} arrived instead of frame {self.arrived}"
            )
        if self.arrived >= self.freed + self.capacity:
            raise RemoteProtocolError(
                f"channel {self.number}: frame {frame} arrived without a credit; all "
                f"{self.capacity} places are taken"
            )
        self._tokens.append(token)
        self.arrived += 1

    def has(self, frame: int) -> bool:
        """Return whether the frame is here."""
        return self.freed <= frame < self.arrived

    def token(self, frame: int) -> object:
        """Return the token of a frame that is here."""
        if not self.freed <= frame < self.arrived:
            raise LocalProtocolError(f"channel {self.number}: frame {frame} is not here")
        return self._tokens[frame - self.freed]

    def end(self, reader: int, frame: int) -> int:
        """Note that a reader has ended with a frame; return the places that this frees (0 or 1)."""
        if frame != self._ended[reader] or frame >= self.arrived:
            raise LocalProtocolError(
                f"channel {self.number}: reader {reader} ended with frame {frame}, "
                f"frame {self._ended[reader]} of {self.arrived} was next"
            )
        self._ended[reader] += 1
        if min(self._ended) == self.freed:
            return 0
        self._tokens.popleft()
        self.freed += 1
        return 1
