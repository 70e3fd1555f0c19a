"""The dialling end of connections, and what both ends share: options, sending, receiving.

A `Dialler` is a connected DEALER; its counterpart is a bound ROUTER, `nodes.net.listener.Listener`.
Only these two modules, `nodes.net.waiter` and `nodes.net.curve` import ZeroMQ.

Sending never blocks or drops. Credits bound what waits to be sent on data connections, so they have
no high-water mark for sending. They have one for receiving, so that the connection itself slows a
flooding peer down. Tensors are sent and received without a copy, except small ones: a small message
lies in a receive buffer with others, would keep all of that alive, and may be unaligned. On its way
from one engine to the next, a tensor is copied at most once in user space (twice if it is not
longer than `SHARED_BELOW_BYTES`). A received payload's memory lives as long as anything refers to
it.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeAlias, TypeVar

import numpy as np
import zmq

from nodes.core import events as ev
from nodes.core.events import LinkChange
from nodes.net.curve import OVERHEAD_BYTES, Context, secure_dialler
from nodes.net.keys import Keyring, KeysError
from nodes.net.waiter import BATCH
from nodes.protocol.codec import decode
from nodes.protocol.errors import NodeError, RemoteProtocolError
from nodes.protocol.messages import Attach, Control, Credit, TensorHeader

COPY_BELOW_BYTES = 1 << 18
"""Shorter payloads are copied when they are sent: that costs less than the notification, by a
thread of pyzmq, that their memory is free again."""

SHARED_BELOW_BYTES = 1 << 13
"""Payloads up to this length are copied when they arrive: ZeroMQ reads this much at once, and
leaves several messages in one buffer. A longer one has separate memory, aligned to 8 bytes.
"""

MAX_PARTS = 3
"""Parts of a message that are kept. It may have two, a header and a payload; the third shows that
it had too many."""

MAX_UNREAD = 64
"""Messages from one peer that may wait to be read; at this number, its connection is not read."""

LARGEST_HIGH_WATER_MARK = (1 << 31) - 1
"""The largest high-water mark that ZeroMQ takes."""

LINGER_MS = 1_000
"""How long a closed connection may take to send its last messages."""

HEARTBEAT_MS = 5_000
SILENCE_MS = 30_000
"""A connection whose peer answers no heartbeat for this time is closed and dialled again. (The end
of the peer's process shows at once.) It is long enough for a large tensor on a slow link, behind
which heartbeats wait. It is also needed after a network was down: TCP would retransmit only after
about as long a time as the network was down.
"""

EVENTS: Any = int(zmq.EVENTS)
READABLE: Any = int(zmq.POLLIN)
"""They are checked before each message, because the exception after the last one would cost more.
They are plain numbers, because members of pyzmq's enumerations take twice as long."""

MORE_FOLLOWS, DO_NOT_WAIT = int(zmq.SNDMORE), int(zmq.DONTWAIT)

HANDSHAKE_ERRORS = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
HANDSHAKE_FAILURES = zmq.EVENT_HANDSHAKE_FAILED_AUTH | HANDSHAKE_ERRORS
MISMATCH = 0x11000002
"""ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one end has keys and the other uses none."""

MAX_FAILED_HANDSHAKES = 5
"""The number of connections in a row whose handshake fails without a reason before the dialling end
reports it as permanent. A busy port closes one occasionally, and an agent that ends closes all.
ZeroMQ dials again ten times a second.
"""

_NUMBERS = itertools.count()

Socket: TypeAlias = "zmq.Socket[bytes]"

Part: TypeAlias = zmq.Frame
"""A received part: `buffer` is a memoryview of its bytes, `bytes` a copy of them."""

Read = TypeVar("Read")

Buffer: TypeAlias = bytes | memoryview
"""Types that can be sent without conversion; a memoryview must be C-contiguous (`array.data`)."""


class AddressError(NodeError):
    """An address cannot be listened on or dialled; the message says which, and why."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """The options of a ZeroMQ socket.

    - `max_bytes`: a longer message closes the connection.
    - `max_unsent`: messages that may wait to be sent; 0 for any number, where credits bound them.
    - `max_unread`: messages that may wait to be read.
    - `linger_ms`: how long waiting messages may take to leave after the socket is closed.
    - `heartbeats`: whether to notice when the peer's machine vanishes.
    - `redial_ms`: a connection that cannot be made is tried again ten times a second; if this is
      not 0, with pauses that double up to this.
    - `attempt_ms`: how long one attempt to connect may take; 0 for as long as the system allows.
    """

    max_bytes: int
    max_unsent: int = 0
    max_unread: int = MAX_UNREAD
    linger_ms: int = 0
    heartbeats: bool = True
    redial_ms: int = 0
    attempt_ms: int = 0

    def apply(self, sock: Socket) -> None:
        """Set the options of a socket; call it before the socket is bound or connected."""
        sock.setsockopt(zmq.MAXMSGSIZE, self.max_bytes + OVERHEAD_BYTES)
        sock.setsockopt(zmq.SNDHWM, self.max_unsent)
        sock.setsockopt(zmq.RCVHWM, min(self.max_unread, LARGEST_HIGH_WATER_MARK))
        sock.setsockopt(zmq.LINGER, self.linger_ms)
        sock.setsockopt(zmq.RECONNECT_IVL_MAX, self.redial_ms)
        sock.setsockopt(zmq.CONNECT_TIMEOUT, self.attempt_ms)
        if self.heartbeats:
            sock.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)


class Dialler:
    """A DEALER that is connected to one port of a node.

    With a `keyring`, the connection is guarded, and the node must own its key in the keyring.
    Raises `AddressError` for an invalid address, and for a node whose key is missing.
    """

    def __init__(
        self,
        context: Context,
        node: str,
        address: str,
        options: SocketOptions,
        keyring: Keyring | None = None,
    ) -> None:
        self.node = node
        self.is_closed = False
        self.socket: Socket = context.zmq.socket(zmq.DEALER)
        options.apply(self.socket)
        try:
            if keyring is not None:
                secure_dialler(self.socket, keyring.secret, keyring.key_of(node))
        except KeysError as error:
            self.socket.close(0)
            raise AddressError(str(error)) from error
        self._is_connected = False
        self._may_deliver = False
        """Whether messages that wait to be sent may still be delivered."""
        self._failed_handshakes = 0
        self.monitor = open_monitor(
            self.socket,
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | HANDSHAKE_FAILURES,
        )
        if address.startswith("tcp://["):
            self.socket.setsockopt(zmq.IPV6, 1)
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise AddressError(f"{address!r} cannot be dialled: {error}") from error

    def receive(self, read: Callable[[list[Part]], Read]) -> list[Read]:
        """Return `read(parts)` for the messages that have arrived.

        If it returns fewer than `BATCH`, no message is left.
        """
        sock = self.socket
        found: list[Read] = []
        while len(found) < BATCH and sock.get(EVENTS) & READABLE:
            found.append(read(receive_parts(sock)))
        return found

    def changes(self) -> list[LinkChange]:
        """Return the changes of the connection since the last call."""
        found: list[LinkChange] = []
        while (happened := next_event(self.monitor)) is not None:
            change = self._change(*happened)
            if change is not None:
                found.append(change)
        return found

    def _change(self, event: int, value: int) -> LinkChange | None:
        """Return what an event of the monitor means, or None.

        The end of a connection without a complete handshake is not reported: its failure has a
        separate event, and ZeroMQ dials again.
        """
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._is_connected = self._may_deliver = True
            self._failed_handshakes = 0
            return LinkChange.CONNECTED
        if event == zmq.EVENT_DISCONNECTED:
            was_connected, self._is_connected = self._is_connected, False
            return LinkChange.LOST if was_connected else None
        self._may_deliver = False
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return LinkChange.KEY_REFUSED
        if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == MISMATCH:
            return LinkChange.KEYS_ON_ONE_END
        self._failed_handshakes += 1
        has_failed = self._failed_handshakes >= MAX_FAILED_HANDSHAKES
        return LinkChange.HANDSHAKES_FAIL if has_failed else LinkChange.CLOSED_EARLY

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send to the node, as soon as the connection is made.

        If the node has refused the connection, as `changes` reports, the message is dropped: ZeroMQ
        has given that connection up, and waiting would never end.
        """
        with contextlib.suppress(zmq.Again):
            send_parts(self.socket, parts, DO_NOT_WAIT)

    def close(self) -> None:
        """Close the connection; messages that wait to be sent have the options' `linger_ms`.

        They are dropped at once if no connection was ever made, or its last handshake failed.
        """
        if self.is_closed:
            return
        self.changes()
        self.is_closed = True
        if not self._may_deliver:
            self.socket.setsockopt(zmq.LINGER, 0)
        close_socket(self.socket, self.monitor)


def peer_address(part: Part) -> str | None:
    """Return the IP address that a part came from; None for transports without addresses."""
    try:
        return str(ip_address(part.get("Peer-Address")))
    except (ValueError, zmq.ZMQError):
        return None


def receive_parts(sock: Socket) -> list[Part]:
    """Return the parts, or remaining parts, of a message; at most `MAX_PARTS` of them."""
    part = sock.recv(copy=False)
    parts = [part]
    while part.more:
        part = sock.recv(copy=False)
        if len(parts) < MAX_PARTS:
            parts.append(part)
    return parts


def send_parts(sock: Socket, parts: Sequence[Buffer], flags: int = 0) -> None:
    """Send a message; a long last part is not copied."""
    for part in parts[:-1]:
        sock.send(part, MORE_FOLLOWS | flags)
    last = parts[-1]
    if (len(last) if type(last) is bytes else memoryview(last).nbytes) < COPY_BELOW_BYTES:
        sock.send(last, flags)
    else:
        sock.send(last, flags, copy=False)


def watched(payload: Buffer, on_release: Callable[[], None]) -> memoryview:
    """Return a view of `payload`, and call `on_release` when nothing refers to the view any longer.

    Another thread may make that call: ZeroMQ releases a long payload when its last byte has gone to
    the operating system, or when its connection is closed.
    """
    view = np.frombuffer(payload, np.uint8)
    weakref.finalize(view, on_release).atexit = False
    return view.data


def open_monitor(sock: Socket, events: int) -> Socket:
    """Return a socket that receives the given events of another socket's connections.

    Its queue is unbounded. By default, ZeroMQ's thread waits when some thousand events are unread,
    and holds the lock that closing the socket needs: a flood at that moment would be a deadlock.
    """
    address = f"inproc://monitor-{next(_NUMBERS)}"
    sock.monitor(address, events)
    listener: Socket = sock.context.socket(zmq.PAIR)
    listener.setsockopt(zmq.RCVHWM, 0)
    listener.connect(address)
    return listener


def next_event(monitor: Socket) -> tuple[int, int] | None:
    """Return a monitor's next event and its value (zmq_socket_monitor(3)); None if none waits."""
    try:
        event, _ = monitor.recv_multipart(zmq.DONTWAIT)
    except zmq.Again:
        return None
    number, value = struct.unpack("=Hi", event)
    return number, value


def close_socket(sock: Socket, monitor: Socket) -> None:
    """Close a socket and its monitor."""
    if not sock.closed:
        sock.disable_monitor()
        monitor.close(0)
        sock.close()


def read_control(parts: list[Part]) -> Control:
    """Return the message on a control connection; raises `RemoteProtocolError` if it is invalid."""
    if len(parts) != 1:
        raise RemoteProtocolError(f"a control message of {len(parts)} parts")
    message = decode(parts[0].buffer)
    if isinstance(message, (Attach, Credit, TensorHeader)):
        raise RemoteProtocolError(f"{type(message).__name__} on a control connection")
    return message


def read_data(link: ev.Link, parts: list[Part]) -> ev.DataReceived | ev.DataMalformed:
    """Return the event for a message on a data connection."""
    try:
        if not 1 <= len(parts) <= 2:
            raise RemoteProtocolError(f"a data message of {len(parts)} parts")
        message = decode(parts[0].buffer)
    except RemoteProtocolError as error:
        return ev.DataMalformed(link, str(error))
    if len(parts) == 1:
        return ev.DataReceived(link, message)
    payload = parts[1]
    size = len(payload)
    whole = payload.bytes if size <= SHARED_BELOW_BYTES else payload.buffer
    return ev.DataReceived(link, message, whole, size)
