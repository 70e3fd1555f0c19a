"""The host's two phases of the dataflow graph: `FrameSource` feeds frames in, `Sink` takes results.

Both keep to the rules of a CSDF phase. The source fires frame k once every input channel has a
credit, claims one of each, and sends. The sink fires frame k once every output channel has
delivered it, and only when the user has taken that result does it give the places back. So the
frames between the host and the nodes never exceed the capacities that were proved, however slow
the user is. Where frames are dealt out to copies of the network, "every channel" means those of
the copy whose turn frame k is. A channel that brings a phase its state is due with frame 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from launcher.core.dealing import Dealing
from nodes.core.deployment import fits
from nodes.core.errors import RemoteProtocolError
from nodes.core.messages import ChannelSpec, Credit, TensorHeader

Payload = TypeVar("Payload")

WHOLE = Dealing()
"""All frames go to the one network that there is."""


class FrameSource:
    """Feeds `frames` frames into `channels`, in order, never without a credit of each."""

    def __init__(
        self,
        channels: Iterable[ChannelSpec],
        frames: int,
        epoch: int,
        dealing: Dealing = WHOLE,
    ) -> None:
        self.frames = frames
        self.epoch = epoch
        self.next_frame = 0
        self._dealing = dealing
        self.channels = tuple(channels)
        self._credits = {channel.number: 0 for channel in self.channels}
        self._capacity = {channel.number: channel.capacity_frames for channel in self.channels}

    @property
    def is_ready(self) -> bool:
        """Whether the next frame may be sent now."""
        return self.next_frame < self.frames and all(
            self._credits[channel.number] for channel in self.due()
        )

    def channels_to(self, node: str) -> list[ChannelSpec]:
        """The channels that feed `node`."""
        return [channel for channel in self.channels if channel.target_node == node]

    def due(self) -> list[ChannelSpec]:
        """The channels that the next frame goes into."""
        copy = self._dealing.copy(self.next_frame)
        return [
            c
            for c in self.channels
            if self._dealing.channel_copy(c.number) == copy
            and not (c.kept_from and self.next_frame)
        ]

    def credit(self, grant: Credit) -> bool:
        """Take in a consumer's grant; returns False, changing nothing, if it is of another epoch.

        Raises `RemoteProtocolError` for a channel that we do not feed and for grants beyond its
        capacity.
        """
        if grant.epoch != self.epoch:
            return False
        if grant.channel not in self._credits:
            raise RemoteProtocolError(f"it gave credit for channel {grant.channel}, not fed by us")
        granted = self._credits[grant.channel] + grant.frames
        if grant.frames < 1 or granted > self._capacity[grant.channel]:
            raise RemoteProtocolError(
                f"it gave {grant.frames} credits for channel {grant.channel}, which makes "
                f"{granted} where the capacity is {self._capacity[grant.channel]}"
            )
        self._credits[grant.channel] = granted
        return True

    def fire(self) -> list[tuple[ChannelSpec, TensorHeader]]:
        """Claim a credit of each channel for the next frame; returns what to send of it."""
        if not self.is_ready:
            raise RuntimeError("the source was fired without credits")
        number, channels = self._dealing.number(self.next_frame), self.due()
        self.next_frame += 1
        for channel in channels:
            self._credits[channel.number] -= 1
        return [(c, TensorHeader(self.epoch, c.number, number, c.dtype, c.shape)) for c in channels]


class Sink(Generic[Payload]):
    """Puts frames together from what arrives on `channels`, and releases them in frame order."""

    def __init__(
        self,
        channels: Iterable[ChannelSpec],
        frames: int,
        epoch: int,
        dealing: Dealing = WHOLE,
    ) -> None:
        self.channels = {channel.number: channel for channel in channels}
        self.frames = frames
        self.epoch = epoch
        self.taken = 0
        self.complete = 0
        """How many frames in a row have arrived completely, those taken included."""
        self._dealing = dealing
        self._waiting: dict[int, dict[int, Payload]] = {n: {} for n in self.channels}
        self._arrived = dict.fromkeys(self.channels, 0)
        self._count_complete()

    @property
    def is_done(self) -> bool:
        """Whether every frame was taken."""
        return self.taken == self.frames

    def attach(self, node: str) -> list[Credit]:
        """The first credits for the channels from `node`: their capacities."""
        return [
            Credit(self.epoch, channel.number, channel.capacity_frames)
            for channel in self.channels_from(node)
        ]

    def channels_from(self, node: str) -> list[ChannelSpec]:
        """The channels that `node` feeds."""
        return [channel for channel in self.channels.values() if channel.source_node == node]

    def tensor(self, node: str, header: TensorHeader, payload: Payload) -> bool:
        """Take in a tensor; returns False, changing nothing, if it is of another epoch.

        Raises `RemoteProtocolError` for a channel that `node` does not feed, another dtype or
        shape, a frame out of turn (twice, or with one left out) or without a credit.
        """
        if header.epoch != self.epoch:
            return False
        channel = self.channels.get(header.channel)
        if channel is None or channel.source_node != node:
            raise RemoteProtocolError(f"it sent on channel {header.channel}, which is not its own")
        if not fits(channel, header.dtype, header.shape):
            raise RemoteProtocolError(
                f"it sent {header.dtype}{list(header.shape)} as {channel.tensor!r}, "
                f"which is {channel.dtype}{list(channel.shape)}"
            )
        due = self._arrived[channel.number]
        if header.frame != due:
            what = "twice" if header.frame < due else f"where frame {due} was due"
            raise RemoteProtocolError(f"it sent frame {header.frame} of {channel.tensor!r} {what}")
        copy = self._dealing.channel_copy(channel.number)
        taken, last = (self._dealing.dealt(copy, frames) for frames in (self.taken, self.frames))
        if due >= min(last, taken + channel.capacity_frames):
            raise RemoteProtocolError(
                f"it sent frame {due} of {channel.tensor!r} without a credit for it"
            )
        self._arrived[channel.number] += 1
        self._waiting[channel.number][due] = payload
        self._count_complete()
        return True

    def _count_complete(self) -> None:
        while self.complete < self.frames:
            number = self._dealing.number(self.complete)
            if any(self._arrived[channel] <= number for channel in self._due(self.complete)):
                return
            self.complete += 1

    def _due(self, frame: int) -> list[int]:
        """The channels that a frame comes out of."""
        copy = self._dealing.copy(frame)
        return [number for number in self.channels if self._dealing.channel_copy(number) == copy]

    @property
    def is_ready(self) -> bool:
        """Whether the next frame is complete."""
        return self.taken < self.complete

    def result(self) -> tuple[int, dict[str, Payload]]:
        """The next frame's number and its outputs by tensor name; `take` it afterwards."""
        if not self.is_ready:
            raise RuntimeError("the sink was asked for a frame that is not complete")
        number = self._dealing.number(self.taken)
        outputs = {
            self._dealing.name(self.channels[channel].tensor): self._waiting[channel][number]
            for channel in self._due(self.taken)
        }
        return self.taken, outputs

    def take(self) -> list[tuple[str, Credit]]:
        """The user has the frame: forget it and return the credits to give back, per node."""
        self.result()
        number, channels = self._dealing.number(self.taken), self._due(self.taken)
        for channel in channels:
            del self._waiting[channel][number]
        self.taken += 1
        return [
            (self.channels[channel].source_node, Credit(self.epoch, channel, 1))
            for channel in channels
        ]
