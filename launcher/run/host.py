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
from launcher.errors import RunFailedError
from launcher.run.connections import Connections
from launcher.run.runtime import Frame, PushedFrames
from launcher.view.frame_trace import FrameTrace
from nodes.core.deployment import most_bytes
from nodes.net.sockets import AddressError
from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import HOST, Attach, Credit, Message, TensorHeader
from nodes.protocol.payload import Array, checked_array


class Host:
    """Streams the frames of each network through one deployment after another.

    Programs push the frames (`look`); each of `networks` has those of one. The network's `state`
    before the first frame maps tensor names to arrays; it is zero if it is not given. If a run of
    one stream is `timed`, `sent_s[k]` is when frame k was sent (for the last time), `received_s[k]`
    when the last of its outputs arrived, in seconds after `began_s` on the monotonic clock. Here k
    does not count frames that were withdrawn.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        networks: Sequence[PushedFrames],
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
        self.sent_bytes = 0
        """The bytes of all frames sent in the present epoch; initial state is left out."""
        self._connections = connections
        self._began_s = began_s
        self._on_traced = on_traced
        several = len(networks) > 1
        blueprints = [
            blueprint.of_network(number) if several else blueprint
            for number in range(len(networks))
        ]
        self._networks = [
            (frames, _stream(own, frames, state or {}))
            for frames, own in zip(networks, blueprints, strict=True)
        ]
        self._streams = NetworkStreams(blueprint, [stream for _, stream in self._networks])
        self._is_timed = timed and not several

    @property
    def progress(self) -> ResultsTaken:
        """The progress of all networks, for the supervisor."""
        return self._streams.progress

    @property
    def held(self) -> dict[int, int]:
        """The frames of each channel from this host that exist, by the channel's number."""
        return {n: frames for s in self._streams for n, frames in s.source.held.items()}

    @property
    def has_sent(self) -> bool:
        """Whether any frame was sent."""
        return any(stream.first + stream.source.next_frame for stream in self._streams)

    def look(self) -> None:
        """Accept the frames that programs have pushed by now (`PushedFrames.seen`)."""
        for frames, stream in self._networks:
            pushed, is_end = frames.seen()
            stream.push(pushed, is_end=is_end)

    @property
    def deadline_s(self) -> float | None:
        """When to `look` although nothing was pushed, on the monotonic clock."""
        found = (frames.deadline_s for frames, _ in self._networks)
        return min((deadline_s for deadline_s in found if deadline_s is not None), default=None)

    def attach(self, blueprint: Blueprint, data_addresses: Mapping[str, str]) -> None:
        """Begin an epoch: connect to these nodes' data ports, and grant the initial credits.

        Raises `RunFailedError` for an invalid address.
        """
        self._streams.begin(blueprint)
        self.sent_bytes = 0
        for frames, stream in self._networks:
            frames.hold(stream.blueprint.frames_held)
        self.look()
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
        return any(stream.may_send or stream.may_take for stream in self._streams)

    def step(self) -> None:
        """Do one thing for each network: send a frame, else hand over a result."""
        for frames, stream in self._networks:
            began_s = self._now_s()
            if stream.may_send:
                if self._send(frames, stream) and self._is_timed:
                    self.sent_s.append(self._now_s())
            elif stream.may_take:
                self._take(frames, stream)
                if not self.first_result_s:
                    self.first_result_s = began_s

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    # ------------------------------------------------------------ one network

    def _send(self, frames: PushedFrames, stream: RunStream[Array]) -> bool:
        """Send the next frame; False if it was withdrawn."""
        number = stream.next_frame
        if number is None:
            raise RuntimeError("there is no frame to send")
        if stream.is_new and not frames.claim(number):
            stream.withdraw()
            return False
        frame = frames[number]  # before a credit is claimed, because a file may be broken
        name = stream.blueprint.dealing.name
        tensors = stream.send()
        if self._on_traced is not None:
            blueprint, sent = stream.blueprint, stream.source.next_frame - 1
            for trace in frames.traces(number):
                trace.sent(blueprint, blueprint.dealing.copy(sent), blueprint.dealing.number(sent))
        for channel, header in tensors:
            is_state = bool(channel.kept_from)
            array = stream.state[channel.tensor] if is_state else frame[name(channel.tensor)]
            self._connections.send_tensor(channel.target_node, header, array)
            self.sent_bytes += 0 if is_state else array.nbytes
        return True

    def _take(self, frames: PushedFrames, stream: RunStream[Array]) -> None:
        """Hand over the next result."""
        number, outputs = stream.result()
        if passed_through := stream.blueprint.passed_through:
            frame = frames[number]
            outputs.update({name: frame[name] for name in passed_through if name in frame})
        traces = frames.traces(number) if self._on_traced is not None else ()
        for trace in traces:
            trace.taken_s = time.monotonic()
        frames.took(number, outputs)
        for trace in traces:
            if self._on_traced is not None:
                self._on_traced(trace)
        for node, credit in stream.take():
            self._connections.send_data(node, credit)


def _stream(blueprint: Blueprint, frames: PushedFrames, state: Frame) -> RunStream[Array]:
    """Return the stream of one network, to which the blueprint is reduced."""
    zeros = {c.tensor: np.zeros(c.shape, c.dtype) for c in blueprint.states}
    return RunStream(blueprint, {**zeros, **state}, frames=frames.count)
