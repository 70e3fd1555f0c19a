"""The host's two phases of the dataflow graph: `FrameSource` feeds frames in, `Sink` takes results.

Both keep to the rules of a CSDF phase and count with the same FIFO ends as an agent
(`nodes.core.fifo`). The source fires frame k once the `Outlet` of every input channel has a credit,
claims one of each, and sends. The sink fires frame k once the `Inlet` of every output channel holds
it, and only when the user has taken that result does it free the places. So the frames between the
host and the nodes never exceed the capacities that were proved, however slow the user is. Where
frames are dealt out to copies of the network, "every channel" means those of the copy whose turn
frame k is. A channel that brings a phase its state carries frame 0 only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar, cast

from launcher.core.dealing import Dealing
from nodes.core.deployment import described, fits
from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import ChannelSpec, Credit, TensorHeader

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
        self.channels = tuple(channels)
        self._dealing = dealing
        self._outlets = {c.number: Outlet(c.number, c.capacity_frames) for c in self.channels}

    @property
    def is_ready(self) -> bool:
        """Whether the next frame may be sent now."""
        return self.next_frame < self.frames and all(
            self._outlets[channel.number].credits for channel in self.due()
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
        outlet = self._outlets.get(grant.channel)
        if outlet is None:
            raise RemoteProtocolError(f"it gave credit for channel {grant.channel}, not fed by us")
        outlet.grant(grant.frames)
        return True

    def fire(self) -> list[tuple[ChannelSpec, TensorHeader]]:
        """Claim a credit of each channel for the next frame; returns what to send of it.

        Raises `LocalProtocolError`, claiming nothing, if a channel has no credit.
        """
        if not self.is_ready:
            raise LocalProtocolError("the source was fired without credits")
        channels = self.due()
        self.next_frame += 1
        return [(channel, self._header(channel)) for channel in channels]

    def _header(self, channel: ChannelSpec) -> TensorHeader:
        outlet = self._outlets[channel.number]
        outlet.claim()
        frame = outlet.send()
        return TensorHeader(self.epoch, channel.number, frame, channel.dtype, channel.shape)


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
        self._inlets = {n: Inlet(n, c.capacity_frames) for n, c in self.channels.items()}
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
        shape, a frame out of turn (twice, or with one left out), without a credit, or that was
        never fed in.
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
        frames = self._dealing.dealt(self._dealing.channel_copy(channel.number), self.frames)
        if header.frame >= frames:
            raise RemoteProtocolError(
                f"{described(channel)}: frame {header.frame} came, and the stream has {frames}"
            )
        self._inlets[channel.number].put(header.frame, payload)
        self._count_complete()
        return True

    def _count_complete(self) -> None:
        while self.complete < self.frames:
            frame = self._dealing.number(self.complete)
            if any(inlet.arrived <= frame for inlet in self._inlets_of(self.complete)):
                return
            self.complete += 1

    def _inlets_of(self, frame: int) -> list[Inlet]:
        """The ends of the channels that a frame of the run comes out of."""
        copy = self._dealing.copy(frame)
        return [
            inlet
            for number, inlet in self._inlets.items()
            if self._dealing.channel_copy(number) == copy
        ]

    @property
    def is_ready(self) -> bool:
        """Whether the next frame is complete."""
        return self.taken < self.complete

    def _next_complete(self) -> tuple[int, list[Inlet]]:
        """The next frame's number in its copy of the network, and the ends that hold it.

        Raises `LocalProtocolError` if that frame is not complete.
        """
        if not self.is_ready:
            raise LocalProtocolError("the sink was asked for a frame that is not complete")
        return self._dealing.number(self.taken), self._inlets_of(self.taken)

    def result(self) -> tuple[int, dict[str, Payload]]:
        """The next frame's number and its outputs by tensor name; `take` it afterwards."""
        frame, inlets = self._next_complete()
        outputs = {
            self._dealing.name(self.channels[inlet.number].tensor): inlet.token(frame)
            for inlet in inlets
        }
        return self.taken, cast(dict[str, Payload], outputs)

    def take(self) -> list[tuple[str, Credit]]:
        """The user has the frame: forget it and return the credits to give back, per node."""
        frame, inlets = self._next_complete()
        self.taken += 1
        return [
            (
                self.channels[inlet.number].source_node,
                Credit(self.epoch, inlet.number, inlet.end(0, frame)),
            )
            for inlet in inlets
        ]
