"""The host's two phases of the dataflow graph: `FrameSource` feeds frames in, `Sink` takes results.

Both keep to the rules of a CSDF phase and count with the same FIFO ends as an agent
(`nodes.core.fifo`). The source fires frame k once the `Outlet` of every input channel has a credit,
claims one of each, and sends. The sink fires frame k once the `Inlet` of every output channel holds
it, and only when the user has taken that result does it free the places. So the frames between the
host and the nodes never exceed the capacities that were proved, however slow the user is. Where
frames are dealt out to copies of the network, "every channel" means those of the copy whose turn
frame k is. A channel that brings a phase its state carries frame 0 only.

The host's ends of the stream over all epochs of a run: which frames still lack a result.

An epoch streams the run's frames from `first` on, which its nodes count from 0. When it is given up
(`halt`), the results that are complete stay for the user to take, and the next epoch (`begin`)
starts with the first frame that has none: frames that were under way are sent again. As the old
epoch's messages are ignored, nothing is doubled.

A network may keep state from frame to frame. What it keeps is among its results, so the last
complete result holds the state with which the next epoch begins. That is the checkpoint: one frame
of state, however many frames are under way. Frames that were computed beyond it are computed again.

The source may drop frames before they are sent (`launcher.core.intake`). Then the stream is shorter
by as many: it counts the frames that it sends, 0, 1, 2, …, and remembers how the source numbers
them until the user has their results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, cast

from launcher.core.blueprint import WHOLE, Blueprint, Dealing
from launcher.core.intake import Intake, Pace
from nodes.core.deployment import described, fits
from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import ChannelSpec, Credit, TensorHeader

Payload = TypeVar("Payload")


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


class RunStream(Generic[Payload]):
    """Streams `frames` frames through one epoch after another; the first is `blueprint`'s.

    `frames`, `first`, `taken` and `complete` count what is streamed, without what was dropped.
    """

    def __init__(
        self,
        frames: int,
        blueprint: Blueprint,
        pace: Pace | None = None,
        state: Mapping[str, Payload] | None = None,
    ) -> None:
        """`state` is what the network keeps before its first frame."""
        self.frames = frames
        self.state: Mapping[str, Payload] = state or {}
        """What the network's phases read at the next epoch's first frame, by tensor name."""
        self.intake = Intake(frames, pace)
        self.first = 0
        self.taken = 0
        """How many results the user has taken, in all epochs."""
        self._kept: deque[dict[str, Payload]] = deque()
        self._numbers: deque[int] = deque()
        """The source's numbers of all frames that were sent and not taken."""
        self._begin(blueprint)

    def _begin(self, blueprint: Blueprint) -> None:
        self.is_live = True
        self.blueprint = blueprint
        ends = (self.frames - self.first, blueprint.epoch, blueprint.dealing)
        self.source = FrameSource(blueprint.from_host, *ends)
        self.sink: Sink[Payload] = Sink(blueprint.to_host, *ends)

    # ------------------------------------------------------------ epochs

    def halt(self) -> tuple[int, int]:
        """Give the epoch up; returns the first frame of the next and how many are sent again."""
        sent = self.first + self.source.next_frame
        while self.sink.is_ready:
            self._kept.append(self.sink.result()[1])
            self._release()
        self.first += self.sink.taken
        self.is_live = False
        return self.first, max(0, sent - self.first)

    def begin(self, blueprint: Blueprint) -> None:
        """Begin the next epoch, after a halt; nothing if this one has begun already."""
        if not self.is_live:
            self._begin(blueprint)

    @property
    def complete(self) -> int:
        """How many frames in a row have a complete result, those taken included."""
        return self.first + (self.sink.complete if self.is_live else 0)

    # ------------------------------------------------------------ frames in

    def advance(self, now_s: float) -> list[int]:
        """Take in what the source has made by now; returns the frames that were dropped of it."""
        dropped = self.intake.advance(now_s)
        if dropped:
            self.frames -= len(dropped)
            if self.is_live:
                self.source.frames = self.sink.frames = self.frames - self.first
        return dropped

    @property
    def offered(self) -> int:
        """How many frames the source has given so far; all, if it has no pace of its own."""
        return self.intake.offered

    @property
    def _again(self) -> int:
        """The place of the next frame among those that were sent, if it is one of them."""
        return self.first + self.source.next_frame - self.taken

    @property
    def next_frame(self) -> int | None:
        """The source's number of the frame that is sent next; None while there is none."""
        if not self.is_live:
            return None
        again = self._again
        return self._numbers[again] if again < len(self._numbers) else self.intake.waiting

    @property
    def may_send(self) -> bool:
        """Whether there is one and every channel has a credit for it."""
        return self.is_live and self.source.is_ready and self.next_frame is not None

    def send(self) -> list[tuple[ChannelSpec, TensorHeader]]:
        """Claim the credits for the next frame; returns what to send of it."""
        is_new = self._again == len(self._numbers)
        sent = self.source.fire()
        if is_new:
            self._numbers.append(self.intake.take())
        return sent

    def credit(self, grant: Credit) -> bool:
        """See `FrameSource.credit`; False also for what an epoch that was given up still grants."""
        return self.is_live and self.source.credit(grant)

    # ------------------------------------------------------------ results out

    def tensor(self, node: str, header: TensorHeader, payload: Payload) -> bool:
        """See `Sink.tensor`; False also for what an epoch that was given up still sends."""
        return self.is_live and self.sink.tensor(node, header, payload)

    @property
    def may_take(self) -> bool:
        """Whether the next result is complete."""
        return bool(self._kept) or (self.is_live and self.sink.is_ready)

    def result(self) -> tuple[int, dict[str, Payload]]:
        """The next result: the source's number of the frame, and its outputs by tensor name; `take`
        it afterwards."""
        outputs = self._kept[0] if self._kept else self.sink.result()[1]
        return self._numbers[0], outputs

    def take(self) -> list[tuple[str, Credit]]:
        """The user has it; returns the credits to give back, per node."""
        self.taken += 1
        self._numbers.popleft()
        if self._kept:
            self._kept.popleft()
            return []
        return self._release()

    def _release(self) -> list[tuple[str, Credit]]:
        """Take the next result out of the sink, but for what the next epoch may begin with."""
        if states := self.blueprint.states:
            outputs = self.sink.result()[1]
            self.state = {channel.tensor: outputs[channel.kept_from] for channel in states}
        return self.sink.take()
