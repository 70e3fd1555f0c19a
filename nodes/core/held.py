"""How many bytes the FIFOs into a node hold: now, and at most so far.

A frame of a channel is held from its arrival, or from the end of the firing that made it on the
same node, until the last of its readers has ended. What waits to be sent is not counted: it belongs
to the FIFO of whoever receives it.
"""

from __future__ import annotations

from collections.abc import Mapping


class Held:
    """Counts for channels that are given as number → (bytes of a frame, how many readers)."""

    def __init__(self, channels: Mapping[int, tuple[int, int]]) -> None:
        self.now_bytes = 0
        self.peak_bytes = 0
        self._bytes = {number: size for number, (size, _) in channels.items()}
        self._ended = {number: [0] * readers for number, (_, readers) in channels.items()}

    def put(self, number: int) -> None:
        """One more frame of the channel is here."""
        self.now_bytes += self._bytes[number]
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)

    def read(self, number: int, reader: int) -> None:
        """A reader of the channel has ended with one more frame."""
        ended = self._ended[number]
        slowest = min(ended)
        ended[reader] += 1
        if min(ended) > slowest:
            self.now_bytes -= self._bytes[number]
