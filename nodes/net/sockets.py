"""Connections over ZeroMQ, for agents and launchers: how they are set up, used and closed.

A `Dialler` is a connected DEALER; its counterpart, a bound ROUTER, is
`nodes.net.listener.Listener`. Only these two modules, `nodes.net.waiter` and `nodes.net.curve` know
ZeroMQ.

Sending never blocks or drops: what waits to be sent on data connections is bounded by credits, so
it has no high-water mark. Receive queues have one, so that a peer that floods us is slowed down by
its own connection. Tensors go out and come in without being copied unless they are small: a very
small message lies in a receive buffer that it shares with its neighbours, would keep all of it
alive, and may be unaligned. So on its way from one engine to the next a tensor is copied at most
once in user space (one of up to `SHARED_BELOW_BYTES`, twice). What was received lives as long as
anything refers to its payload.

What the parts of a received message say; the same for agents and launchers.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, TypeAlias, TypeVar

import zmq

from nodes.core import events as ev
from nodes.core.events import LinkChange
from nodes.net.curve import OVERHEAD_BYTES, Context, identify
from nodes.net.keys import Keyring, KeysError
from nodes.net.waiter import BATCH
from nodes.protocol.codec import decode
from nodes.protocol.errors import NodeError, RemoteProtocolError
from nodes.protocol.messages import Attach, Control, Credit, TensorHeader

COPY_BELOW_BYTES = 1 << 18
"""Payloads shorter than this are copied when they are sent: that is cheaper than being told, by a
thread of pyzmq's, when their memory is free again."""

SHARED_BELOW_BYTES = 1 << 13
"""Payloads up to this length are copied when they arrive: ZeroMQ reads so much at once, and leaves
several messages where it has read them. A longer one gets memory of its own, aligned to 8 bytes."""

MAX_PARTS = 3
"""A message has at most a header and a payload; one part more shows that it had too many."""

UNREAD = 64
"""Messages from one peer that may wait to be read; then its connection is no longer read."""

MOST_UNREAD = (1 << 31) - 1
"""The largest bound that ZeroMQ takes."""

GOODBYE_MS = 1_000
"""How long the last messages may take to leave when connections are closed."""

HEARTBEAT_MS = 5_000
SILENCE_MS = 30_000
"""A peer machine that answers no heartbeat for so long is gone (its process's end shows at once);
long enough for a large tensor on a slow link, behind which heartbeats wait. When a network was
down, TCP sends again only after as long a time as that lasted; a connection that was silent for
long is given up before that and made anew."""

EVENTS: Any = int(zmq.EVENTS)
READABLE: Any = int(zmq.POLLIN)
"""Asked for before each message: the exception after the last one would cost more. Plain numbers,
because members of pyzmq's enumerations take twice as long."""

MORE_FOLLOWS, DO_NOT_WAIT = int(zmq.SNDMORE), int(zmq.DONTWAIT)

REJECTED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
BARRED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | REJECTED
MISMATCH = 0x11000002
"""ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH: one end has keys and the other uses none."""

FRUITLESS = 5
"""Connections that may end before their handshake, one after the other, for no stated reason: a
busy port closes one now and then to make room, an agent that ends all. ZeroMQ dials again, ten
times a second."""

_NUMBERS = itertools.count()

Socket: TypeAlias = "zmq.Socket[bytes]"

Part: TypeAlias = zmq.Frame
"""A received part: `buffer` is a memoryview of its bytes, `bytes` a copy of them."""

Read = TypeVar("Read")

Buffer: TypeAlias = bytes | memoryview
"""What can be sent as it lies in memory; C-contiguous (`array.data` of a NumPy array that is)."""


class AddressError(NodeError):
    """An address cannot be listened on or dialled: which, and why."""


@dataclass(frozen=True, slots=True)
class ConnectionTerms:
    """What is allowed on a connection.

    A message of more than `max_bytes` costs the peer the connection. `unsent` messages may wait to
    be sent (0: any number, where credits bound them), and `unread` ones to be read. What waits to
    be sent when the connection is closed gets `linger_ms`. Without `heartbeats`, a peer machine
    that vanishes is not noticed here. A connection that cannot be made is tried again ten times a
    second, or ever more rarely until it is every `redial_ms`; an attempt takes up to `attempt_ms`
    (0: as long as the system lets it).
    """

    max_bytes: int
    unsent: int = 0
    unread: int = UNREAD
    linger_ms: int = 0
    heartbeats: bool = True
    redial_ms: int = 0
    attempt_ms: int = 0

    def apply(self, sock: Socket) -> None:
        """Set a socket's options, before it is bound or connected."""
        sock.setsockopt(zmq.MAXMSGSIZE, self.max_bytes + OVERHEAD_BYTES)
        sock.setsockopt(zmq.SNDHWM, self.unsent)
        sock.setsockopt(zmq.RCVHWM, min(self.unread, MOST_UNREAD))
        sock.setsockopt(zmq.LINGER, self.linger_ms)
        sock.setsockopt(zmq.RECONNECT_IVL_MAX, self.redial_ms)
        sock.setsockopt(zmq.CONNECT_TIMEOUT, self.attempt_ms)
        if self.heartbeats:
            sock.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)


class Dialler:
    """A DEALER connected to one port of a node.

    With a `keyring` the connection is guarded: the node must have the key that is known of it
    there. Raises `AddressError` for what is no address, and for a node whose key is not known.
    """

    def __init__(
        self,
        context: Context,
        node: str,
        address: str,
        terms: ConnectionTerms,
        keyring: Keyring | None = None,
    ) -> None:
        self.node = node
        self.is_closed = False
        self.socket: Socket = context.zmq.socket(zmq.DEALER)
        terms.apply(self.socket)
        try:
            if keyring is not None:
                identify(self.socket, keyring.secret, keyring.key_of(node))
        except KeysError as error:
            self.socket.close(0)
            raise AddressError(str(error)) from error
        self._stands = False
        self._has_hope = False
        """Whether what waits to be sent may still get through."""
        self._fruitless = 0
        self.monitor = open_monitor(
            self.socket, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | BARRED
        )
        if address.startswith("tcp://["):
            self.socket.setsockopt(zmq.IPV6, 1)
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise AddressError(f"{address!r} cannot be dialled: {error}") from error

    def receive(self, read: Callable[[list[Part]], Read]) -> list[Read]:
        """What `read` makes of the messages that have come in (their parts).

        If it returns less than `BATCH`, nothing is left.
        """
        sock = self.socket
        found: list[Read] = []
        while len(found) < BATCH and sock.get(EVENTS) & READABLE:
            found.append(read(receive_parts(sock)))
        return found

    def changes(self) -> list[LinkChange]:
        """What has happened to the connection since this was last asked."""
        found: list[LinkChange] = []
        while (happened := next_event(self.monitor)) is not None:
            change = self._change(*happened)
            if change is not None:
                found.append(change)
        return found

    def _change(self, event: int, value: int) -> LinkChange | None:
        """What an event of the monitor means. The end of a connection that never stood is no news:
        why it failed is told by an event of its own, and ZeroMQ dials again."""
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._stands = self._has_hope = True
            self._fruitless = 0
            return LinkChange.CONNECTED
        if event == zmq.EVENT_DISCONNECTED:
            stood, self._stands = self._stands, False
            return LinkChange.LOST if stood else None
        self._has_hope = False
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return LinkChange.KEY_REFUSED
        if event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == MISMATCH:
            return LinkChange.KEYS_ON_ONE_END
        self._fruitless += 1
        is_hopeless = self._fruitless >= FRUITLESS
        return LinkChange.HANDSHAKES_FAIL if is_hopeless else LinkChange.CLOSED_EARLY

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send to the node, as soon as the connection stands.

        Nothing can be sent where this node was turned away, as `changes` reports: ZeroMQ has given
        that connection up and would wait for ever.
        """
        with contextlib.suppress(zmq.Again):
            send_parts(self.socket, parts, DO_NOT_WAIT)

    def close(self) -> None:
        """Close the connection; what waits to be sent gets the terms' `linger_ms`, but nothing if
        the connection never stood or the two ends could not agree."""
        if self.is_closed:
            return
        self.changes()
        self.is_closed = True
        if not self._has_hope:
            self.socket.setsockopt(zmq.LINGER, 0)
        close_socket(self.socket, self.monitor)


def peer_address(part: Part) -> str | None:
    """The IP address that a part came from; None for transports without any."""
    try:
        return str(ip_address(part.get("Peer-Address")))
    except (ValueError, zmq.ZMQError):
        return None


def receive_parts(sock: Socket) -> list[Part]:
    """The parts of a message that is there, or the rest of it; at most `MAX_PARTS` are kept."""
    part = sock.recv(copy=False)
    parts = [part]
    while part.more:
        part = sock.recv(copy=False)
        if len(parts) < MAX_PARTS:
            parts.append(part)
    return parts


def send_parts(sock: Socket, parts: Sequence[Buffer], flags: int = 0) -> None:
    """Send a message; large parts are not copied."""
    for part in parts[:-1]:
        sock.send(part, MORE_FOLLOWS | flags)
    last = parts[-1]
    if (len(last) if type(last) is bytes else memoryview(last).nbytes) < COPY_BELOW_BYTES:
        sock.send(last, flags)
    else:
        sock.send(last, flags, copy=False)


def open_monitor(sock: Socket, events: int) -> Socket:
    """Where a socket tells of its connections.

    What it tells waits without bound. By default ZeroMQ's thread waits once some thousand events
    do, with the lock that closing the socket needs: a flood at that moment would stop both for
    good.
    """
    address = f"inproc://monitor-{next(_NUMBERS)}"
    sock.monitor(address, events)
    listener: Socket = sock.context.socket(zmq.PAIR)
    listener.setsockopt(zmq.RCVHWM, 0)
    listener.connect(address)
    return listener


def next_event(monitor: Socket) -> tuple[int, int] | None:
    """The next event of a socket's monitor and its value, if any (zmq_socket_monitor(3))."""
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
    """A message on a control connection; raises `RemoteProtocolError` if it is none."""
    if len(parts) != 1:
        raise RemoteProtocolError(f"a control message of {len(parts)} parts")
    message = decode(parts[0].buffer)
    if isinstance(message, (Attach, Credit, TensorHeader)):
        raise RemoteProtocolError(f"{type(message).__name__} on a control connection")
    return message


def read_data(link: ev.Link, parts: list[Part]) -> ev.DataReceived | ev.DataMalformed:
    """What came on a data connection."""
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
