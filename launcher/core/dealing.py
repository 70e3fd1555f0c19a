"""Which copy of a network computes which frame, as the host's source and sink count them.

Copies know nothing of each other: each gets frames 0, 1, 2, … of its own. The host alone knows that
frame k of the run is frame j of a copy. A network that was not copied is a single copy of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Dealing:
    """`pattern` has the copy of each frame of a cycle (see `csdf.conversion.dealing`).

    `copy_of` tells to which copy each of the host's channels belongs, by channel number (0 where it
    is missing); `own_name` what the network calls a copy's input or output (the same where it is
    missing).
    """

    pattern: tuple[int, ...] = (0,)
    copy_of: Mapping[int, int] = field(default_factory=dict)
    own_name: Mapping[str, str] = field(default_factory=dict)

    def copy(self, frame: int) -> int:
        """The copy that computes a frame of the run."""
        return self.pattern[frame % len(self.pattern)]

    def dealt(self, copy: int, frames: int) -> int:
        """How many of the first `frames` frames of the run a copy gets."""
        cycles, rest = divmod(frames, len(self.pattern))
        return cycles * self.pattern.count(copy) + self.pattern[:rest].count(copy)

    def number(self, frame: int) -> int:
        """The number that a frame of the run has in its copy."""
        return self.dealt(self.copy(frame), frame)

    def channel_copy(self, channel: int) -> int:
        """The copy that a channel belongs to."""
        return self.copy_of.get(channel, 0)

    def name(self, tensor: str) -> str:
        """What the network as it was read calls a tensor."""
        return self.own_name.get(tensor, tensor)
