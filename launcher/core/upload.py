"""Uploads blobs to an agent in chunks, of which a bounded number may be unanswered (the window).

If several agents receive blobs at once, the one with the most bytes has the full window and the
others a smaller one. Where the launcher's link is the bottleneck, that agent has its blobs early
and prepares them while the next one receives its own. Where each agent has a slow link, the smaller
window still fills it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import CHUNK_BYTES, PUT_WINDOW, BlobInfo, Stored

BESIDE_WINDOW = 1
"""The window of an agent while another one is ahead: one round trip per MiB."""

Chunk = tuple[BlobInfo, int, int]
"""A blob, an offset in it and a number of bytes from there."""


def chunks(blob: BlobInfo) -> Iterable[Chunk]:
    """Yield the chunks of one blob in order; an empty blob has one empty chunk."""
    for offset in range(0, max(blob.size_bytes, 1), CHUNK_BYTES):
        yield blob, offset, min(CHUNK_BYTES, blob.size_bytes - offset)


class Upload:
    """The blobs that are sent to one agent, of which at most a window of chunks is unanswered.

    Answers must come in the order of the chunks, as they do on one connection.
    """

    def __init__(self, blobs: Iterable[BlobInfo] = ()) -> None:
        waiting = [chunk for blob in blobs for chunk in chunks(blob)]
        self._waiting: deque[Chunk] = deque(waiting)
        self._unanswered: deque[Chunk] = deque()
        self.total_bytes = sum(size for _, _, size in waiting)
        self.stored_bytes = 0

    @property
    def is_complete(self) -> bool:
        """Whether every chunk was sent and answered."""
        return not self._waiting and not self._unanswered

    def due(self, window: int = PUT_WINDOW) -> list[Chunk]:
        """Return the chunks for which the window has room; the caller sends them now."""
        due: list[Chunk] = []
        while self._waiting and len(self._unanswered) < window:
            chunk = self._waiting.popleft()
            self._unanswered.append(chunk)
            due.append(chunk)
        return due

    @property
    def is_sent(self) -> bool:
        """Whether every chunk was sent."""
        return not self._waiting

    def stored(self, answer: Stored) -> None:
        """Handle an answer; raises `RemoteProtocolError` if it is not the one that is due."""
        if not self._unanswered:
            raise RemoteProtocolError(
                f"it stored a chunk of {answer.digest[:12]} that this launcher never sent"
            )
        blob, offset, size = self._unanswered[0]
        if (answer.digest, answer.offset_bytes) != (blob.digest, offset):
            raise RemoteProtocolError(
                f"it answered for {answer.digest[:12]} at {answer.offset_bytes} instead of "
                f"{blob.digest[:12]} at {offset}"
            )
        if offset + size == blob.size_bytes and not answer.complete:
            raise RemoteProtocolError(
                f"it received all of {blob.digest[:12]} but does not report it complete: its "
                "content changed on the way or on this machine's disk"
            )
        self._unanswered.popleft()
        self.stored_bytes += size
        if answer.complete:
            self._skip(blob)

    def _skip(self, blob: BlobInfo) -> None:
        """Drop the unsent chunks of a blob: an agent with the same cache received it first."""
        skipped = [chunk for chunk in self._waiting if chunk[0] == blob]
        self._waiting = deque(chunk for chunk in self._waiting if chunk[0] != blob)
        self.stored_bytes += sum(size for _, _, size in skipped)
