"""Sends the frames of each network to the nodes, and hands over their results.

This is the shell around `launcher.core.stream`, which decides which frame may be sent and which
result is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from launcher.core.blueprint import Blueprint
from launcher.core.events import Halted, ResultsTaken
from launcher.core.networks import NetworkStreams
from launcher.core.stream import RunStream
from launcher.errors import BadInputError, RunFailedError
from launcher.run.connections import Connections
from launcher.run.runtime import Array, Frame, PushedNetwork
from launcher.run.tensors import as_tensor
from launcher.view.frame_trace import FrameTrace
from nodes.core.deployment import most_bytes
from nodes.net.sockets import AddressError
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import HOST, Attach, ChannelSpec, Credit, Message, TensorHeader
from nodes.protocol.payload import checked_array


class Host:
    """Streams the frames of each network through one deployment after another.

    Programs push the frames (`look`). The network's `state` before the first frame maps tensor
    names to arrays; it is zero if it is not given. If a run of one stream is `timed`, `sent_s[k]`
    is when frame k was sent (for the last time), `received_s[k]` when the last of its outputs
    arrived, in seconds after `began_s` on the monotonic clock. Here k does not count frames that
    were withdrawn.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        networks: Sequence[PushedNetwork],
        connections: Connections,
        began_s: float,
        state: Frame | None = None,
        *,
        timed: bool = True,
        on_traced: Callable[[FrameTrace], None] | None = None,
    ) -> None:
        """`on_traced` is called with each frame that is followed, when its result is taken; without
        it no frame is."""
        self.sent_s: list[float] = []
        self.received_s: list[float] = []
        self.first_result_s = 0.0
        self._connections = connections
        self._began_s = began_s
        several = len(networks) > 1
        shares = [
            blueprint.of_network(number) if several else blueprint
            for number in range(len(networks))
        ]
        self._lanes = [
            _Lane(share, network, connections, state, on_traced)
            for share, network in zip(shares, networks, strict=True)
        ]
        self._streams = NetworkStreams(blueprint, [lane.stream for lane in self._lanes])
        self._is_timed = timed and len(self._lanes) == 1

    @property
    def progress(self) -> ResultsTaken:
        """The progress of all networks, for the supervisor."""
        return self._streams.progress

    @property
    def held(self) -> dict[int, int]:
        """The frames of each channel from this host that exist, by the channel's number."""
        return {n: frames for s in self._streams for n, frames in s.source.held.items()}

    @property
    def sent_bytes(self) -> int:
        """The bytes of all frames sent in the present epoch; initial state is left out."""
        return sum(lane.sent_bytes for lane in self._lanes)

    @property
    def has_sent(self) -> bool:
        """Whether any frame was sent."""
        return any(stream.first + stream.source.next_frame for stream in self._streams)

    def look(self) -> None:
        """Accept the frames that programs have pushed by now (`PushedFrames.seen`)."""
        for lane in self._lanes:
            lane.look()

    @property
    def deadline_s(self) -> float | None:
        """When to `look` although nothing was pushed, on the monotonic clock."""
        found = (lane.deadline_s for lane in self._lanes)
        return min((deadline_s for deadline_s in found if deadline_s is not None), default=None)

    def attach(self, blueprint: Blueprint, data_addresses: Mapping[str, str]) -> None:
        """Begin an epoch: connect to these nodes' data ports, and grant the initial credits.

        Raises `RunFailedError` for an invalid address.
        """
        self._streams.begin(blueprint)
        for lane in self._lanes:
            lane.begin()
        for node, address in data_addresses.items():
            touched = self._streams.channels(node)
            feeds = (channel for channel in touched if channel.source_node == node)
            longest_bytes = max((most_bytes(c) for c in feeds), default=0)
            agreed = sum(c.consumer_frames for c in touched)  # tensors, and credits one by one
            try:
                self._connections.open_data(node, address, longest_bytes, agreed)
            except AddressError as error:
                raise RunFailedError(f"node {node!r}: its data port: {error}") from error
            self._connections.send_data(node, Attach(blueprint.epoch, HOST))
            for credit in self._streams.attach(node):
                self._connections.send_data(node, credit)

    def halt(self) -> Halted:
        """Abandon the epoch and close all data connections."""
        self._connections.close_data()
        halted = self._streams.halt()
        del self.sent_s[halted.first :]
        return halted

    def arrived(
        self, node: str, message: Message, payload: object = None, payload_bytes: int = 0
    ) -> None:
        """Handle a credit or a tensor; raises `RemoteProtocolError` for anything else, and for a
        tensor or credit that breaks the protocol.
        """
        match message:
            case TensorHeader():
                tensor = checked_array(message, payload, payload_bytes)
                self._streams.tensor(node, message, tensor)
            case Credit() if payload is None:
                self._streams.credit(message)
            case _:
                raise RemoteProtocolError(
                    f"it sent {type(message).__name__} and {payload_bytes} bytes "
                    "on the data connection"
                )
        if self._is_timed:
            complete = self._streams[0].complete
            self.received_s += [self._now_s()] * (complete - len(self.received_s))

    @property
    def is_busy(self) -> bool:
        """Whether `step` has something to do."""
        return any(lane.is_busy for lane in self._lanes)

    def step(self) -> None:
        """Do one thing for each network: send a frame, else hand over a result."""
        for lane in self._lanes:
            began_s = self._now_s()
            was_sent, was_taken = lane.step()
            if was_sent and self._is_timed:
                self.sent_s.append(self._now_s())
            if was_taken and not self.first_result_s:
                self.first_result_s = began_s

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s


class _Lane:
    """Sends the frames of one network, and hands over its results."""

    def __init__(
        self,
        blueprint: Blueprint,
        network: PushedNetwork,
        connections: Connections,
        state: Frame | None,
        on_traced: Callable[[FrameTrace], None] | None,
    ) -> None:
        self._on_traced = on_traced
        self._frames = network.frames
        self._on_result = network.on_result
        self._connections = connections
        self.sent_bytes = 0
        zeros = {c.tensor: np.zeros(c.shape, c.dtype) for c in blueprint.states}
        self.stream: RunStream[Array] = RunStream(
            blueprint, {**zeros, **(state or {})}, frames=self._frames.count
        )

    def begin(self) -> None:
        """Say how many frames the epoch that begins can hold, and accept those that arrived."""
        self.sent_bytes = 0
        self._frames.hold(self.stream.blueprint.frames_held)
        self.look()

    def look(self) -> None:
        """Accept the frames that a program has pushed by now."""
        frames, is_end = self._frames.seen()
        self.stream.push(frames, is_end=is_end)

    @property
    def deadline_s(self) -> float | None:
        """See `PushedFrames.deadline_s`."""
        return self._frames.deadline_s

    @property
    def is_busy(self) -> bool:
        """Whether `step` has something to do."""
        return self.stream.may_send or self.stream.may_take

    def step(self) -> tuple[bool, bool]:
        """Do one thing, if there is any: return whether a frame was sent, and a result taken."""
        if self.stream.may_send:
            return self._send(), False
        if self.stream.may_take:
            self._take()
            return False, True
        return False, False

    def _send(self) -> bool:
        """Send the next frame; False if it was withdrawn."""
        number = self.stream.next_frame
        if number is None:
            raise RuntimeError("there is no frame to send")
        if self.stream.is_new and not self._frames.claim(number):
            self.stream.withdraw()
            return False
        frame = self._load(number)
        name = self.stream.blueprint.dealing.name
        tensors = self.stream.send()
        if self._on_traced is not None:
            self._note_sent(number)
        for channel, header in tensors:
            array = (
                self.stream.state[channel.tensor]
                if channel.kept_from
                else frame[name(channel.tensor)]
            )
            self._connections.send_tensor(channel.target_node, header, array)
            self.sent_bytes += 0 if channel.kept_from else array.nbytes
        return True

    def _note_sent(self, number: int) -> None:
        """Note where the frame that is sent now will be, if it is traced."""
        share, sent = self.stream.blueprint, self.stream.source.next_frame - 1
        for trace in self._frames.traces(number):
            trace.sent(share, share.dealing.copy(sent), share.dealing.number(sent))

    def _take(self) -> None:
        number, outputs = self.stream.result()
        if passed_through := self.stream.blueprint.passed_through:
            frame = self._frames[number]
            outputs.update({name: frame[name] for name in passed_through if name in frame})
        traces = self._frames.traces(number) if self._on_traced is not None else ()
        for trace in traces:
            trace.taken_s = time.monotonic()
        self._on_result(number, outputs)
        for trace in traces:
            if self._on_traced is not None:
                self._on_traced(trace)
        for node, credit in self.stream.take():
            self._connections.send_data(node, credit)

    def _load(self, number: int) -> Frame:
        frame, dealing = self._frames[number], self.stream.blueprint.dealing
        due = {dealing.name(c.tensor): c for c in self.stream.source.due() if not c.kept_from}
        return {name: _checked(number, frame, name, c) for name, c in due.items()}


def _checked(number: int, frame: Frame, name: str, channel: ChannelSpec) -> Array:
    """Return the frame's array for a channel in C order; raises `BadInputError` if it does not
    fit."""
    array = frame.get(name)
    if array is None:
        raise BadInputError(f"frame {number} has no input {name!r}")
    try:
        return as_tensor(array, name, channel.dtype, channel.shape)
    except BadInputError as error:
        raise BadInputError(f"frame {number}: {error}") from error
