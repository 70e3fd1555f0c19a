"""Bounds the bytes of tensors that a node has made, or is about to make, and has not yet sent.

Credits bound the frames of a channel at both ends together. All of them may be at the producer,
because the connection is slow or because an early phase fires several times in a row. So a node has
room for only some of these bytes: a firing is dispatched if what it sends fits beside what earlier
firings have not yet sent, or if nothing of theirs is left.

This only delays firings, and by a finite time: a frame is claimed with a credit, so its consumer
has a place for it, and what has been made leaves without waiting for any firing.

ZeroMQ copies short payloads at once, so only long ones count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nodes.protocol.errors import LocalProtocolError

LONG_BYTES = 1 << 18
"""The length from which payloads are sent without a copy: for shorter ones a copy costs less than
the notification by a thread of pyzmq that their memory is free again."""


@dataclass(frozen=True, slots=True)
class Sends:
    """What a firing of a phase sends: the bytes of its long tensors, and the number of messages
    that carry them."""

    size_bytes: int = 0
    messages: int = 0


class Outbox:
    """The long tensors of a node's firings, from dispatch until they have left.

    `limit_bytes` of 0 is no bound.
    """

    def __init__(self, limit_bytes: int, sends: Sequence[Sends]) -> None:
        """`sends` has an entry for each phase."""
        self.limit_bytes = limit_bytes
        self.unsent_bytes = 0
        self._sends = tuple(sends)
        self._messages: dict[tuple[int, int], int] = {}

    def admits(self, phase: int) -> bool:
        """Return whether there is room for what a firing of the phase sends."""
        if not self.limit_bytes or not self.unsent_bytes:
            return True
        return self.unsent_bytes + self._sends[phase].size_bytes <= self.limit_bytes

    def claim(self, phase: int, frame: int) -> None:
        """Take room for a firing that is dispatched."""
        if not self.limit_bytes:
            return
        sends = self._sends[phase]
        if sends.messages:
            self._messages[phase, frame] = sends.messages
            self.unsent_bytes += sends.size_bytes

    def sent(self, phase: int, frame: int) -> None:
        """Note that a message of a firing has left, with all of them its room."""
        left = self._messages.get((phase, frame), 0) - 1
        if left < 0:
            raise LocalProtocolError(f"phase {phase}, frame {frame}: more messages left than made")
        if left:
            self._messages[phase, frame] = left
        else:
            del self._messages[phase, frame]
            self.unsent_bytes -= self._sends[phase].size_bytes
