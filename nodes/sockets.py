"""Sockets; `nodes.listener`, `nodes.waiter`, `nodes.curve` and this are what knows ZeroMQ here.

A `Listener` is a bound ROUTER, a `Dialler` a connected DEALER. Sending never blocks or drops: what
waits to be sent on data connections is bounded by credits, so it has no high-water mark. Receive
queues have one, so that a peer that floods us is slowed down by its own connection. Tensors go out
and come in without being copied unless they are small: a very small message lies in a receive
buffer that it shares with its neighbours, would keep all of it alive, and may be unaligned. So on
its way from one engine to the next a tensor is copied at most once in user space (one of up to
`SHARED_BELOW_BYTES`, twice). What was received lives as long as anything refers to its payload.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import zmq

from nodes.core.errors import NodeError
from nodes.curve import OVERHEAD_BYTES, Context, identify
from nodes.endpoints import GONE, NO_HANDSHAKE, STRANGER, UNLIKE
from nodes.waiter import BATCH

COPY_BELOW_BYTES = 1 << 18
"""Payloads shorter than this are copied when they are sent: that is cheaper than being told, by a
thread of pyzmq's, when their memory is free again."""

SHARED_BELOW_BYTES = 1 << 13
"""Payloads up to this length are copied when they arrive: ZeroMQ reads so much at once, and leaves
several messages where it has read them. A longer one gets memory of its own, aligned to 8 bytes."""

MAX_PARTS = 3
"""A message has at most a header and a payload; one part more shows that it had too many."""

WAITING = 64
"""Messages from one peer that may wait to be read; then its connection is no longer read."""

HEARTBEAT_MS = 5_000
SILENCE_MS = 30_000
"""A peer machine that answers no heartbeat for so long is gone (its process's end shows at once);
long enough for a large tensor on a slow link, behind which heartbeats wait."""

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


class Dialler:
    """A DEALER connected to a node's data port; raises `AddressError` for what is no address.

    With `server`, the public key that the node must have, the connection is guarded.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        max_bytes: int,
        linger_ms: int = 0,
        server: bytes | None = None,
    ) -> None:
        self.socket: Socket = context.zmq.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, linger_ms)
        limit_peer(self.socket, max_bytes)
        if server is not None and context.keyring is not None:
            identify(self.socket, context.keyring.secret, server)
        self._stands = False
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

    def lost(self) -> str | None:
        """Why there is no connection any more, or never will be, if that was not told before."""
        why = None
        while (happened := next_event(self.monitor)) is not None:
            why = self._happened(*happened) or why
        if why not in (None, GONE):
            self.socket.setsockopt(zmq.LINGER, 0)  # nothing will ever get through
        return why

    def _happened(self, event: int, value: int) -> str | None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._stands, self._fruitless = True, 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            return STRANGER
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and value == MISMATCH:
            return UNLIKE
        elif event & REJECTED:
            self._fruitless += 1
            return NO_HANDSHAKE if self._fruitless == FRUITLESS else None
        elif self._stands:
            self._stands = False
            return GONE
        return None

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send to the node, as soon as the connection stands.

        Nothing can be sent where this node was turned away, as `lost` tells: ZeroMQ has given that
        connection up and would wait for ever.
        """
        with contextlib.suppress(zmq.Again):
            send_parts(self.socket, parts, DO_NOT_WAIT)

    def close(self) -> None:
        """Close the connection; what waits to be sent gets `linger_ms`."""
        close_socket(self.socket, self.monitor)


def limit_peer(sock: Socket, max_bytes: int) -> None:
    """Bound what a peer may send, and notice one that has gone silent."""
    sock.setsockopt(zmq.MAXMSGSIZE, max_bytes + OVERHEAD_BYTES)
    sock.setsockopt(zmq.SNDHWM, 0)
    sock.setsockopt(zmq.RCVHWM, WAITING)
    sock.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)


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
