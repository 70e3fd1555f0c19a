"""Decides which frame the host may send and which result is complete, over all epochs of a run.

**One epoch.** The host is two phases of the dataflow graph: `FrameSource` feeds frames in,
`FrameSink` takes results. Both follow the firing rule of CSDF and count with the same FIFO ends as
agents (`nodes.core.fifo`). The source fires frame k when the `Outlet` of every input channel has a
credit; it claims one of each and sends. The sink fires frame k when the `Inlet` of every output
channel holds the frame; it frees the places only after the user has taken the result. The frames
between host and nodes therefore never exceed the proved capacities, however slow the user is. If
frames are dealt out to copies of the network, "every channel" means the channels of the copy that
computes frame k. A channel that brings a phase its initial state carries frame 0 only.

**All epochs** (`RunStream`). An epoch streams the run's frames from `first` on; its nodes count
them from 0. When it is abandoned (`halt`), complete results stay for the user to take, and the next
epoch (`begin`) starts with the first frame without a result, so frames that were in flight are sent
again. Messages of the old epoch are ignored, so no result comes twice.

If the network keeps state from frame to frame, the state is among its results. The last complete
result therefore holds the state with which the next epoch begins: a checkpoint of one frame,
however many frames are in flight.

Frames are pushed into the stream, whose number need not be known in advance: a camera runs until it
is switched off. A frame that was pushed waits until it is sent, or is withdrawn before that; the
program bounds how many frames wait (`Intake`). The stream counts the frames that it sends, 0, 1, 2,
…, and keeps the number under which each was pushed until the user has taken its result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Generic, TypeVar, cast

from launcher.core.blueprint import WHOLE, Blueprint, Dealing
from nodes.core.deployment import described, fits
from nodes.core.fifo import Inlet, Outlet
from nodes.protocol.errors import LocalProtocolError, RemoteProtocolError
from nodes.protocol.messages import ChannelSpec, Credit, TensorHeader

Payload = TypeVar("Payload")


class FrameSource:
    """Feeds `frames` frames of one epoch into `channels`, in order and bounded by their credits."""

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
            self._outlets[channel.number].places for channel in self.due()
        )

    @property
    def held(self) -> dict[int, int]:
        """The frames of each channel that exist, by the channel's number."""
        return {number: outlet.held for number, outlet in self._outlets.items()}

    def due(self) -> list[ChannelSpec]:
        """The channels into which the next frame goes."""
        copy = self._dealing.copy(self.next_frame)
        return [
            c
            for c in self.channels
            if self._dealing.channel_copy(c.number) == copy
            and not (c.kept_from and self.next_frame)
        ]

    def credit(self, grant: Credit) -> bool:
        """Handle a consumer's grant; return False, changing nothing, if it is of another epoch.

        Raises `RemoteProtocolError` if the host does not feed the channel, or if its capacity would
        be exceeded.
        """
        if grant.epoch != self.epoch:
            return False
        outlet = self._outlets.get(grant.channel)
        if outlet is None:
            raise RemoteProtocolError(
                f"it gave credit for channel {grant.channel}, which the host does not feed"
            )
        outlet.grant(grant.frames)
        return True

    def fire(self) -> list[tuple[ChannelSpec, TensorHeader]]:
        """Claim a credit of each channel for the next frame; return the headers to send.

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


class FrameSink(Generic[Payload]):
    """Assembles the results of one epoch from the tensors on `channels`, in frame order."""

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
        """How many frames in a row, from the first on, have arrived completely."""
        self._dealing = dealing
        self._inlets = {n: Inlet(n, c.consumer_frames) for n, c in self.channels.items()}
        self._count_complete()

    @property
    def is_done(self) -> bool:
        """Whether every frame was taken."""
        return self.taken == self.frames

    def attach(self, node: str) -> list[Credit]:
        """The initial credits for the channels from `node`: the host's places."""
        return [
            Credit(self.epoch, channel.number, channel.consumer_frames)
            for channel in self.channels_from(node)
        ]

    def channels_from(self, node: str) -> list[ChannelSpec]:
        """The channels that `node` feeds."""
        return [channel for channel in self.channels.values() if channel.source_node == node]

    def tensor(self, node: str, header: TensorHeader, payload: Payload) -> bool:
        """Accept a tensor; return False, changing nothing, if it is of another epoch.

        Raises `RemoteProtocolError` if `node` does not feed the channel, if dtype or shape differ
        from the channel's, if the frame is repeated, out of order or beyond the stream's end, or if
        it was sent without a credit.
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
                f"{described(channel)}: frame {header.frame} arrived, but the stream has {frames}"
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
        """The ends of the channels that carry a frame's results."""
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
        """Return the next frame's number in its copy of the network, and the ends that hold it.

        Raises `LocalProtocolError` if that frame is not complete.
        """
        if not self.is_ready:
            raise LocalProtocolError("the sink was fired for a frame that is not complete")
        return self._dealing.number(self.taken), self._inlets_of(self.taken)

    def result(self) -> tuple[int, dict[str, Payload]]:
        """Return the next frame's number and its outputs by tensor name; call `take` afterwards."""
        frame, inlets = self._next_complete()
        outputs = {
            self._dealing.name(self.channels[inlet.number].tensor): inlet.token(frame)
            for inlet in inlets
        }
        return self.taken, cast(dict[str, Payload], outputs)

    def take(self) -> list[tuple[str, Credit]]:
        """Release the frame, which the user has taken; return the credits for each node."""
        frame, inlets = self._next_complete()
        self.taken += 1
        return [
            (
                self.channels[inlet.number].source_node,
                Credit(self.epoch, inlet.number, inlet.end(0, frame)),
            )
            for inlet in inlets
        ]


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


class StreamState(Enum):
    """Whether frames may flow."""

    PENDING = "no epoch has begun"
    LIVE = "an epoch streams"
    HALTED = "the epoch is abandoned, and the next one has not begun"


class RunStream(Generic[Payload]):
    """Streams the frames that are pushed through one epoch after another; `begin` starts each.

    `frames` is an upper bound until the end is known. `frames`, `first`, `taken` and `complete` do
    not count frames that were withdrawn.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        state: Mapping[str, Payload] | None = None,
        *,
        frames: int = ENDLESS,
    ) -> None:
        """`blueprint` is the first epoch's, `state` the network's before its first frame, by tensor
        name."""
        self.frames = frames
        self.state: Mapping[str, Payload] = state or {}
        """The state with which the next epoch's first frame is computed, by tensor name."""
        self._intake = Intake(frames)
        self.first = 0
        self.taken = 0
        """How many results the user has taken, in all epochs."""
        self._kept: deque[dict[str, Payload]] = deque()
        self._numbers: deque[int] = deque()
        """The numbers under which the frames were pushed whose results are not taken."""
        self._prepare(blueprint)
        self._stream_state = StreamState.PENDING

    def _prepare(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        ends = (self.frames - self.first, blueprint.epoch, blueprint.dealing)
        self.source = FrameSource(blueprint.from_host, *ends)
        self.sink: FrameSink[Payload] = FrameSink(blueprint.to_host, *ends)

    @property
    def _is_live(self) -> bool:
        return self._stream_state is StreamState.LIVE

    # ------------------------------------------------------------ epochs

    def halt(self) -> tuple[int, int]:
        """Abandon the epoch; return the next one's first frame, and how many are sent again."""
        sent = self.first + self.source.next_frame
        while self.sink.is_ready:
            self._kept.append(self.sink.result()[1])
            self._release()
        self.first += self.sink.taken
        self._stream_state = StreamState.HALTED
        return self.first, max(0, sent - self.first)

    def begin(self, blueprint: Blueprint) -> None:
        """Begin an epoch; raises `LocalProtocolError` if one streams already."""
        if self._is_live:
            raise LocalProtocolError("an epoch was begun while another one streams")
        self._prepare(blueprint)
        self._stream_state = StreamState.LIVE

    @property
    def complete(self) -> int:
        """How many frames in a row, from the first on, have a complete result."""
        return self.first + (self.sink.complete if self._is_live else 0)

    # ------------------------------------------------------------ frames in

    def _shorten(self) -> None:
        self.frames = frames = self._intake.frames
        if self._is_live:
            self.source.frames = self.sink.frames = frames - self.first

    def push(self, frames: int, *, is_end: bool = False) -> None:
        """`frames` in all have been pushed so far; no more come if `is_end`."""
        self._intake.push(frames)
        if is_end:
            self._intake.end()
            self._shorten()

    def withdraw(self) -> None:
        """The next frame, which was pushed and never sent, is not to be sent."""
        if not self.is_new:
            raise LocalProtocolError("a frame that was sent cannot be withdrawn")
        self._intake.withdraw()
        self._shorten()

    @property
    def is_new(self) -> bool:
        """Whether the next frame has never been sent."""
        return self._again >= len(self._numbers)

    @property
    def offered(self) -> int:
        """How many frames were pushed so far and not withdrawn."""
        return self._intake.offered

    @property
    def _again(self) -> int:
        """The index of the next frame in `_numbers`; their length if it was not sent before."""
        return self.first + self.source.next_frame - self.taken

    @property
    def next_frame(self) -> int | None:
        """The number under which the next frame was pushed; None while there is none to send."""
        if self._stream_state is StreamState.HALTED:
            return None
        again = self._again
        return self._numbers[again] if again < len(self._numbers) else self._intake.waiting

    @property
    def may_send(self) -> bool:
        """Whether there is a frame to send and every channel has a credit for it."""
        return self._is_live and self.source.is_ready and self.next_frame is not None

    def send(self) -> list[tuple[ChannelSpec, TensorHeader]]:
        """Claim the credits for the next frame; return the headers to send."""
        is_new = self.is_new
        sent = self.source.fire()
        if is_new:
            self._numbers.append(self._intake.take())
        return sent

    def credit(self, grant: Credit) -> bool:
        """See `FrameSource.credit`; returns False also after a halt."""
        return self._is_live and self.source.credit(grant)

    # ------------------------------------------------------------ results out

    def tensor(self, node: str, header: TensorHeader, payload: Payload) -> bool:
        """See `FrameSink.tensor`; returns False also after a halt."""
        return self._is_live and self.sink.tensor(node, header, payload)

    @property
    def may_take(self) -> bool:
        """Whether the next result is complete."""
        return bool(self._kept) or (self._is_live and self.sink.is_ready)

    def result(self) -> tuple[int, dict[str, Payload]]:
        """Return the next result: the number under which its frame was pushed, and its outputs by
        tensor name. Call `take` afterwards.
        """
        outputs = self._kept[0] if self._kept else self.sink.result()[1]
        return self._numbers[0], outputs

    def take(self) -> list[tuple[str, Credit]]:
        """Release the result, which the user has taken; return the credits for each node."""
        self.taken += 1
        self._numbers.popleft()
        if self._kept:
            self._kept.popleft()
            return []
        return self._release()

    def _release(self) -> list[tuple[str, Credit]]:
        """Release the next result, and keep the state with which the next epoch may begin."""
        if states := self.blueprint.states:
            outputs = self.sink.result()[1]
            self.state = {channel.tensor: outputs[channel.kept_from] for channel in states}
        return self.sink.take()
