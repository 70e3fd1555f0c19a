"""Loads frames, sends them to the nodes, and hands results to the user.

This is the shell around `launcher.core.stream`, which decides which frame may be sent and which
result is complete.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sized

import numpy as np

from launcher.core.blueprint import Blueprint
from launcher.core.events import ResultsTaken
from launcher.core.intake import Pace
from launcher.core.stream import RunStream
from launcher.errors import BadInputError, RunFailedError
from launcher.run.connections import Connections
from launcher.run.runtime import Array, Frame, Frames, OnDrop, OnResult, PushedFrames
from nodes.core.deployment import most_bytes
from nodes.net.sockets import AddressError
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import HOST, Attach, ChannelSpec, Credit, Message, TensorHeader
from nodes.protocol.payload import checked_array


class Host:
    """Streams `frames` through one deployment after another.

    A program may push the frames (`look`). A source with a `pace` may drop frames; `on_drop` is
    called for each. The network's `state`
    before the first frame maps tensor names to arrays; it is zero if it is not given. `sent_s[k]`
    is when frame k was sent (for the last time), `received_s[k]` when the last of its outputs
    arrived, in seconds after `began_s` on the monotonic clock. Here k does not count dropped
    frames.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        frames: Frames | PushedFrames,
        on_result: OnResult,
        connections: Connections,
        began_s: float,
        pace: Pace | None = None,
        on_drop: OnDrop | None = None,
        state: Frame | None = None,
    ) -> None:
        self.sent_s: list[float] = []
        self.received_s: list[float] = []
        self.first_result_s = 0.0
        self.stale = 0
        self._frames = frames
        self._on_result = on_result
        self._connections = connections
        self._began_s = began_s
        self._on_drop = on_drop
        self._next: tuple[int, Frame] | None = None
        zeros = {c.tensor: np.zeros(c.shape, c.dtype) for c in blueprint.states}
        self._pushed = None if isinstance(frames, Sized) else frames
        count = len(frames) if isinstance(frames, Sized) else None
        self._stream: RunStream[Array] = RunStream(
            count, blueprint, pace, {**zeros, **(state or {})}
        )

    @property
    def progress(self) -> ResultsTaken:
        """The progress of the stream, for the supervisor."""
        return ResultsTaken(self._stream.taken, self._stream.frames, self._stream.offered)

    @property
    def next_frame_s(self) -> float | None:
        """When the source makes its next frame, on the monotonic clock; None if unknown."""
        return self._stream.intake.due_s

    def advance(self) -> None:
        """Queue the frames that the source has made by now."""
        for frame in self._stream.advance(time.monotonic()):
            if self._on_drop is not None:
                self._on_drop(frame)

    def look(self) -> None:
        """Take in what a program has pushed by now (`PushedFrames.seen`)."""
        if self._pushed is not None:
            frames, is_end = self._pushed.seen()
            self._stream.push(frames, is_end=is_end)

    def attach(self, blueprint: Blueprint, data_addresses: Mapping[str, str]) -> None:
        """Begin an epoch: connect to these nodes' data ports, and grant the initial credits.

        Raises `RunFailedError` for an invalid address.
        """
        self._stream.begin(blueprint)
        self._stream.intake.begin(time.monotonic())
        self.advance()
        for node, address in data_addresses.items():
            feeds = self._stream.sink.channels_from(node)
            longest_bytes = max((most_bytes(c) for c in feeds), default=0)
            touched = (*feeds, *self._stream.source.channels_to(node))
            agreed = sum(c.capacity_frames for c in touched)  # tensors, and credits one by one
            try:
                self._connections.open_data(node, address, longest_bytes, agreed)
            except AddressError as error:
                raise RunFailedError(f"node {node!r}: its data port: {error}") from error
            self._connections.send_data(node, Attach(blueprint.epoch, HOST))
            for credit in self._stream.sink.attach(node):
                self._connections.send_data(node, credit)

    def halt(self) -> tuple[int, int]:
        """Give the epoch up and close all data connections; returns as `RunStream.halt`."""
        self._connections.close_data()
        self._next = None  # it may be a later frame than the one that is sent next
        first, replayed = self._stream.halt()
        del self.sent_s[first:]
        return first, replayed

    def arrived(
        self, node: str, message: Message, payload: object = None, payload_bytes: int = 0
    ) -> None:
        """Take in a credit or a tensor; raises `RemoteProtocolError` for anything else, and for a
        tensor or credit that breaks the protocol."""
        match message:
            case TensorHeader():
                tensor = checked_array(message, payload, payload_bytes)
                fresh = self._stream.tensor(node, message, tensor)
            case Credit() if payload is None:
                fresh = self._stream.credit(message)
            case _:
                raise RemoteProtocolError(
                    f"it sent {type(message).__name__} and {payload_bytes} bytes "
                    "on the data connection"
                )
        self.stale += not fresh
        if self._pushed is None:
            self.received_s += [self._now_s()] * (self._stream.complete - len(self.received_s))

    @property
    def is_busy(self) -> bool:
        """Whether `step` has something to do."""
        return self._stream.may_send or self._stream.may_take or self._to_load() is not None

    def step(self) -> None:
        """Do one thing: send a frame, else hand over a result, else load the next frame."""
        if self._stream.may_send:
            self._send()
        elif self._stream.may_take:
            self._take()
        elif (number := self._to_load()) is not None:
            self._next = number, self._load(number)

    def _to_load(self) -> int | None:
        """The frame to load ahead, if it is not loaded and can no longer be dropped."""
        number, pace = self._stream.next_frame, self._stream.intake.pace
        if pace is not None and pace.on_overload == "drop-oldest":
            return None
        if self._pushed is not None:  # it is there already, and may be withdrawn
            return None
        return None if self._next is not None and self._next[0] == number else number

    def _send(self) -> None:
        number = self._stream.next_frame
        if number is None:
            raise RuntimeError("there is no frame to send")
        if self._pushed is not None and self._stream.is_new and not self._pushed.claim(number):
            self._stream.withdraw()
            return
        is_loaded = self._next is not None and self._next[0] == number
        frame = self._next[1] if self._next is not None and is_loaded else self._load(number)
        self._next = None
        name = self._stream.blueprint.dealing.name
        for channel, header in self._stream.send():
            array = (
                self._stream.state[channel.tensor]
                if channel.kept_from
                else frame[name(channel.tensor)]
            )
            self._connections.send_tensor(channel.target_node, header, array)
        if self._pushed is None:
            self.sent_s.append(self._now_s())

    def _take(self) -> None:
        number, outputs = self._stream.result()
        if passed_through := self._stream.blueprint.passed_through:
            frame = self._frames[number]
            outputs.update({name: frame[name] for name in passed_through})
        if not self._stream.taken:
            self.first_result_s = self._now_s()
        self._on_result(number, outputs)
        for node, credit in self._stream.take():
            self._connections.send_data(node, credit)

    def _load(self, number: int) -> Frame:
        frame, dealing = self._frames[number], self._stream.blueprint.dealing
        due = {dealing.name(c.tensor): c for c in self._stream.source.due() if not c.kept_from}
        return {name: _checked(number, frame, name, c) for name, c in due.items()}

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


def _checked(number: int, frame: Frame, name: str, channel: ChannelSpec) -> Array:
    """Return the frame's array for a channel in C order; raises `BadInputError` if it does not
    fit."""
    array = frame.get(name)
    if array is None:
        raise BadInputError(f"frame {number} has no input {name!r}")
    if (array.dtype.name, array.shape) != (channel.dtype, channel.shape):
        raise BadInputError(
            f"frame {number}: input {name!r} is {array.dtype.name}{list(array.shape)}, "
            f"but the network takes {channel.dtype}{list(channel.shape)}"
        )
    return np.ascontiguousarray(array)
