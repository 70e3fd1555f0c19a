"""The launcher's end of the wire: one control and at most one data connection per node.

The only file of the launcher that knows ZeroMQ. Connections are made in the background and made
again if they break; what that means is the supervisor's business. Tensors go out and come in
without a copy: what is sent must not be changed until the node has it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from itertools import islice
from types import TracebackType

import numpy as np
import zmq
from zmq.utils.monitor import parse_monitor_message

from launcher.access import NO_HANDSHAKE, STRANGER, UNLIKE
from launcher.runtime import Array
from nodes.core.codec import MAX_MESSAGE_BYTES, decode, encode
from nodes.core.errors import RemoteProtocolError
from nodes.core.messages import Attach, Control, Credit, Message, TensorHeader
from nodes.curve import OVERHEAD_BYTES, identify
from nodes.keys import Keyring, KeysError

MISMATCH = 0x11000002
"""ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one end has keys and the other uses none."""

GOODBYE_S = 1.0
"""How long the last messages to agents may take to leave when everything closes."""

RECONNECT_AT_LEAST_MS = 3200
"""How often a node that is gone is dialled at least: at first ten times a second, then ever more
rarely."""

HEARTBEAT_MS, SILENCE_MS, DIALLING_MS = 5_000, 30_000, 3_000
"""On control connections: when a network was down, TCP sends again after as long a time as that
lasted. So a connection that was silent for long is given up, as agents do after the same time, and
made anew by short attempts."""

WAITING = 64
"""Messages on a data connection that may wait to be read whatever was agreed."""

_MOST_WAITING = (1 << 31) - 1

BATCH = 1000
"""Messages that are taken from one connection before the others have their turn."""

COPY_BELOW_BYTES = 1 << 16
"""Smaller tensors are copied when they arrive: they would keep a receive buffer alive."""


@dataclass(frozen=True, slots=True)
class FromControl:
    """A message on a node's control connection, and the IP address it came from (tcp only)."""

    node: str
    message: Control
    host: str | None


@dataclass(frozen=True, slots=True)
class FromData:
    """A message on a node's data connection; `tensor` is there with a `TensorHeader`."""

    node: str
    message: Message
    tensor: Array | None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What came from a node is no message of the protocol."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class LinkStands:
    """A node's data connection stands."""

    node: str


@dataclass(frozen=True, slots=True)
class Stands:
    """A node's control connection stands, for the first time or again."""

    node: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A connection with a node that stood has closed."""

    node: str


@dataclass(frozen=True, slots=True)
class Barred:
    """A node's agent and we could not agree on who we are, or on being encrypted at all."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class DescriptorReadable:
    """A watched file descriptor has something to read, or its end."""

    descriptor: int


Arrival = (
    FromControl | FromData | Unreadable | LinkStands | Stands | Closed | Barred | DescriptorReadable
)


@dataclass(slots=True)
class _Standing:
    """Whether a connection stands: its handshake is over."""

    stands: bool = False


class Sockets:
    """All connections of one run; a context manager that closes them.

    Those to addresses that `guards` are encrypted, and made only with the nodes that have the keys
    in `keys`.
    """

    def __init__(
        self, keys: Keyring | None = None, guards: Callable[[str], bool] = lambda _: False
    ) -> None:
        self._keys = keys
        self._guards = guards
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = zmq.Poller()
        self._control: dict[str, zmq.Socket[bytes]] = {}
        self._data: dict[str, zmq.Socket[bytes]] = {}
        self._readers: dict[object, Callable[[], Iterator[Arrival]]] = {}
        self._monitors: dict[zmq.Socket[bytes], zmq.Socket[bytes]] = {}
        self._greeted: set[str] = set()

    def __enter__(self) -> Sockets:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for monitor, socket in self._monitors.items():
            socket.disable_monitor()
            monitor.close(linger=0)
        for node, socket in self._control.items():
            socket.close(linger=int(GOODBYE_S * 1000) if node in self._greeted else 0)
        for socket in self._data.values():
            socket.close(linger=0)
        self._context.term()

    def open_control(self, node: str, address: str) -> None:
        """Connect to a node's control address; raises `ValueError` if it is not an address."""
        socket = self._control[node] = self._context.socket(zmq.DEALER)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES + OVERHEAD_BYTES)
        self._secure(socket, node, address)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_AT_LEAST_MS)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, DIALLING_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
        told: dict[int, Arrival] = {
            zmq.EVENT_HANDSHAKE_SUCCEEDED: Stands(node),
            zmq.EVENT_DISCONNECTED: Closed(node),
        }
        self._monitor(socket, {**told, **_barred(node)})
        self._read(socket, lambda: self._drain_control(node, socket))
        _connect(socket, address)

    def open_data(self, node: str, address: str, longest_bytes: int, agreed: int = 0) -> None:
        """Connect to a node's data address; raises `ValueError` if it is not an address.

        Whoever sends a tensor of more than `longest_bytes` loses the connection. When `agreed`
        messages wait, or `WAITING` if they are more, it is no longer read.
        """
        socket = self._data[node] = self._context.socket(zmq.DEALER)
        longest_bytes = max(longest_bytes, MAX_MESSAGE_BYTES) + OVERHEAD_BYTES
        socket.setsockopt(zmq.MAXMSGSIZE, longest_bytes)
        # Credits bound what is sent, a second bound could only block; but they bind only those who
        # heed them: whoever sends more is slowed down by its own connection. Whoever heeds them
        # must not be: heartbeats would go unanswered behind what waits.
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.setsockopt(zmq.RCVHWM, min(max(WAITING, agreed), _MOST_WAITING))
        self._secure(socket, node, address)
        told: dict[int, Arrival] = {
            zmq.EVENT_HANDSHAKE_SUCCEEDED: LinkStands(node),
            zmq.EVENT_DISCONNECTED: Closed(node),
        }
        self._monitor(socket, told)
        self._read(socket, lambda: _drain_data(node, socket))
        _connect(socket, address)

    def _secure(self, socket: zmq.Socket[bytes], node: str, address: str) -> None:
        if self._keys is None or not self._guards(address):
            return
        try:
            identify(socket, self._keys.secret, self._keys.key_of(node))
        except KeysError as error:
            raise ValueError(str(error)) from error

    def close_data(self) -> None:
        """Hang up on all data connections; nothing of them is reported any more."""
        left = set(self._data.values())
        for monitor in [m for m, socket in self._monitors.items() if socket in left]:
            self.unwatch(monitor)
            self._monitors.pop(monitor).disable_monitor()
            monitor.close(linger=0)
        for socket in left:
            self.unwatch(socket)
            socket.close(linger=0)
        self._data.clear()

    def watch(self, descriptor: int) -> None:
        """Report `DescriptorReadable` whenever this file descriptor has something to read."""
        self._read(descriptor, lambda: iter([DescriptorReadable(descriptor)]))

    def unwatch(self, source: zmq.Socket[bytes] | int) -> None:
        """No longer report on this file descriptor."""
        self._poller.unregister(source)
        del self._readers[source]

    def _monitor(self, socket: zmq.Socket[bytes], told: Mapping[int, Arrival]) -> None:
        monitor = socket.get_monitor_socket(sum(told))
        self._monitors[monitor] = socket
        self._read(monitor, partial(_drain_monitor, monitor, told, _Standing()))

    def _read(
        self, source: zmq.Socket[bytes] | int, reader: Callable[[], Iterator[Arrival]]
    ) -> None:
        self._readers[source] = reader
        self._poller.register(source, zmq.POLLIN)

    def send(self, node: str, message: Control) -> None:
        """Send a control message; it leaves once the connection stands.

        To a node that has turned this launcher away, nothing can be sent: ZeroMQ has given that
        connection up and would wait for ever. That it is gone is told as `Barred` or `Closed`.
        """
        _offer(self._control[node], [encode(message)])

    def send_data(self, node: str, message: Attach | Credit) -> None:
        """Send a data message without a tensor; likewise."""
        _offer(self._data[node], [encode(message)])

    def send_tensor(self, node: str, header: TensorHeader, tensor: Array) -> None:
        """Send a C-contiguous tensor without copying it; likewise."""
        _offer(self._data[node], [encode(header), tensor.data])

    def poll(self, timeout_s: float | None) -> Iterator[Arrival]:
        """Wait until something arrives or the time is over; then what is there.

        In order of arrival on each connection, and no more than `BATCH` of each: one that never
        falls silent keeps nobody from being heard. None waits for ever.
        """
        timeout_ms = None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1000)
        for source, _ in self._poller.poll(timeout_ms):
            if source in self._readers:
                yield from islice(self._readers[source](), BATCH)

    def _drain_control(self, node: str, socket: zmq.Socket[bytes]) -> Iterator[Arrival]:
        while (parts := _receive(socket)) is not None:
            self._greeted.add(node)
            yield _control(node, parts)


def _connect(socket: zmq.Socket[bytes], address: str) -> None:
    if address.startswith("tcp://["):
        socket.setsockopt(zmq.IPV6, 1)
    try:
        socket.connect(address)
    except zmq.ZMQError as error:
        raise ValueError(f"{address!r} is not an address ({error})") from error


def _drain_monitor(
    monitor: zmq.Socket[bytes], told: Mapping[int, Arrival], link: _Standing
) -> Iterator[Arrival]:
    """What has become of a connection. That one ends before its handshake does is not told as its
    end: it never stood, and ZeroMQ dials again."""
    while (parts := _receive(monitor)) is not None:
        happened = parse_monitor_message([part.bytes for part in parts])
        event, stood = happened["event"], link.stands
        if event in (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED):
            link.stands = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if not (stood or link.stands):
                continue
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and happened["value"] != MISMATCH:
            event = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        yield told[event]


def _barred(node: str) -> Mapping[int, Arrival]:
    """What failed handshakes tell of a node."""
    return {
        zmq.EVENT_HANDSHAKE_FAILED_AUTH: Barred(node, STRANGER),
        zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Barred(node, UNLIKE),
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Barred(node, NO_HANDSHAKE),
    }


def _drain_data(node: str, socket: zmq.Socket[bytes]) -> Iterator[Arrival]:
    while (parts := _receive(socket)) is not None:
        yield _data(node, parts)


def _receive(socket: zmq.Socket[bytes]) -> list[zmq.Frame] | None:
    if socket.closed:  # on account of what came before
        return None
    try:
        return socket.recv_multipart(zmq.DONTWAIT, copy=False)
    except zmq.Again:
        return None


def _control(node: str, parts: list[zmq.Frame]) -> Arrival:
    try:
        if len(parts) != 1:
            raise RemoteProtocolError(f"a control message of {len(parts)} parts")
        message = decode(parts[0].buffer)
        if isinstance(message, (Attach, Credit, TensorHeader)):
            raise RemoteProtocolError(f"{type(message).__name__} on the control connection")
        return FromControl(node, message, _host(parts[0]))
    except RemoteProtocolError as error:
        return Unreadable(node, str(error))


def _host(part: zmq.Frame) -> str | None:
    """The sender's IP address; None for transports without any."""
    try:
        return str(ip_address(part.get("Peer-Address")))
    except (ValueError, zmq.ZMQError):
        return None


def _data(node: str, parts: list[zmq.Frame]) -> Arrival:
    try:
        message = decode(parts[0].buffer)
        if isinstance(message, TensorHeader):
            return FromData(node, message, _tensor(message, parts[1:]))
        if len(parts) != 1:
            raise RemoteProtocolError(f"{type(message).__name__} of {len(parts)} parts")
        return FromData(node, message, None)
    except RemoteProtocolError as error:
        return Unreadable(node, str(error))


def _tensor(header: TensorHeader, parts: list[zmq.Frame]) -> Array:
    if len(parts) != 1:
        raise RemoteProtocolError(f"a tensor with {len(parts)} parts of bytes, not one")
    dtype = np.dtype(header.dtype)
    data = parts[0].buffer
    said = f"{data.nbytes} bytes for {header.dtype}{list(header.shape)} of channel {header.channel}"
    if data.nbytes != dtype.itemsize * math.prod(header.shape):
        raise RemoteProtocolError(said)
    try:
        array = np.frombuffer(data, dtype).reshape(header.shape)
    except ValueError:  # an axis is empty, and the others are longer than arrays can be
        raise RemoteProtocolError(said) from None
    return array.copy() if data.nbytes < COPY_BELOW_BYTES else array


def _offer(socket: zmq.Socket[bytes], parts: list[bytes | memoryview]) -> None:
    with contextlib.suppress(zmq.Again):
        socket.send_multipart(parts, zmq.NOBLOCK, copy=len(parts) == 1)
