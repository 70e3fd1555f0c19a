"""Sockets: the only file of `nodes` that knows ZeroMQ.

A `Listener` is a bound ROUTER, a `Dialler` a connected DEALER. Sending never blocks or drops: what
waits to be sent is bounded by credits, so send queues have no high-water mark; receive queues have
one, so that a peer that floods us is slowed down by its own connection. Tensors go out and come in
without being copied unless they are small: a small message lies in a receive buffer that it shares
with its neighbours, would keep all of it alive, and may be unaligned. What was received lives as
long as anything refers to its payload.

A connection is cut off for real: the file descriptor that a message came from (`ZMQ_SRCFD`) is
shut down, and what still arrives under its routing id is dropped.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import zmq

from nodes.core.errors import NodeError

COPY_BELOW_BYTES = 1 << 16
"""Payloads shorter than this are copied."""

MAX_PARTS = 3
"""A message has at most a header and a payload; one part more shows that it had too many."""

MAX_CUT_OFF = 1024
"""Routing ids of cut-off peers that are remembered."""

BATCH = 64
"""Messages taken from one socket before the others get their turn."""

WAITING = 64
"""Messages from one peer that may wait to be read; then its connection is no longer read."""

STREAK = 8
"""How often the busy sockets are read before the idle ones are asked too."""

HEARTBEAT_MS = 5_000
SILENCE_MS = 30_000
"""A peer machine that answers no heartbeat for so long is gone (its process's end shows at once);
long enough for a large tensor on a slow link, behind which heartbeats wait."""

HINTS = {
    errno.EADDRINUSE: "; is another agent running there?",
    errno.ENODEV: "; give an IP address of this machine, or 0.0.0.0 for all that it has",
    errno.EADDRNOTAVAIL: "; give an IP address of this machine, or 0.0.0.0 for all that it has",
}
"""What to do about an address, by error number."""

READABLE: Any = zmq.POLLIN
"""Asked for before each message: the exception after the last one would cost more."""

REJECTED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL

Socket: TypeAlias = "zmq.Socket[bytes]"

Part: TypeAlias = zmq.Frame
"""A received part: `buffer` is a memoryview of its bytes, `bytes` a copy of them."""

Read = TypeVar("Read")

Buffer: TypeAlias = bytes | memoryview
"""What can be sent as it lies in memory; C-contiguous (`array.data` of a NumPy array that is)."""


class AddressError(NodeError):
    """An address cannot be listened on or dialled: which, and why."""


class Context:
    """What sockets are made in: one per agent, closed after all of them.

    ZeroMQ's threads are started here, not with the first socket: they inherit the control group of
    the thread that starts them.
    """

    def __init__(self) -> None:
        self.zmq: zmq.Context[Socket] = zmq.Context()
        self.zmq.socket(zmq.PAIR).close()

    def close(self) -> None:
        """Wait until what lingers has left, and end ZeroMQ's own thread."""
        self.zmq.term()


class Listener:
    """A bound ROUTER: receives from whoever dials, answers by routing id.

    `address` is where it really listens (a port of 0 is replaced by the one that was found).
    Raises `AddressError` if that is impossible.
    """

    def __init__(self, context: Context, address: str, max_bytes: int, linger_ms: int = 0) -> None:
        self.socket: Socket = context.zmq.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.LINGER, linger_ms)
        _limit(self.socket, max_bytes)
        _bind(self.socket, address)
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.monitor = self.socket.get_monitor_socket(REJECTED | zmq.EVENT_DISCONNECTED)
        self._cut_off: dict[bytes, None] = {}
        self._peers: dict[bytes, int] = {}

    def receive(self, read: Callable[[bytes, list[Part]], Read]) -> list[Read]:
        """What `read` makes of the messages that have come in (routing id, parts)."""
        sock, peers = self.socket, self._peers
        found = []
        for _ in range(BATCH):
            if not sock.get(zmq.EVENTS) & READABLE:
                break
            peer = sock.recv()
            parts = _parts(sock)
            if peer not in peers:
                if peer in self._cut_off:
                    continue
                peers[peer] = _descriptor(parts[0])
            found.append(read(peer, parts))
        return found

    def closed(self) -> list[bytes | str]:
        """The peers whose connections have closed; a sentence for one that never had any."""
        found: list[bytes | str] = []
        while (happened := _monitored(self.monitor)) is not None:
            event, descriptor = happened
            if event & REJECTED:
                found.append(f"no ZeroMQ handshake ({zmq.Event(event).name})")
                continue
            # Descriptors are used again: of two peers that had this one, the earlier has closed.
            peer = next((p for p, known in self._peers.items() if known == descriptor), None)
            if peer is not None:
                del self._peers[peer]
                found.append(peer)
        return found

    def send(self, peer: bytes, parts: Sequence[Buffer]) -> bool:
        """Send to a peer; False if it is gone."""
        try:
            self.socket.send(peer, zmq.SNDMORE | zmq.DONTWAIT)
        except zmq.ZMQError:
            return False
        _send(self.socket, parts)
        return True

    def cut_off(self, peer: bytes) -> None:
        """Close a peer's connection and drop what it has sent before."""
        if len(self._cut_off) >= MAX_CUT_OFF:
            del self._cut_off[next(iter(self._cut_off))]
        self._cut_off[peer] = None
        with contextlib.suppress(OSError):
            connection = socket.socket(fileno=os.dup(self._peers.pop(peer, -1)))
            with connection:
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop listening; what waits to be sent gets `linger_ms`."""
        _close(self.socket, self.monitor)


class Dialler:
    """A DEALER connected to a node's data port; raises `AddressError` for what is no address."""

    def __init__(self, context: Context, address: str, max_bytes: int, linger_ms: int = 0) -> None:
        self.socket: Socket = context.zmq.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, linger_ms)
        _limit(self.socket, max_bytes)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        if address.startswith("tcp://["):
            self.socket.setsockopt(zmq.IPV6, 1)
        try:
            self.socket.connect(address)
        except zmq.ZMQError as error:
            self.close()
            raise AddressError(f"{address!r} cannot be dialled: {error}") from error

    def receive(self, read: Callable[[list[Part]], Read]) -> list[Read]:
        """What `read` makes of the messages that have come in (their parts)."""
        sock = self.socket
        found = []
        for _ in range(BATCH):
            if not sock.get(zmq.EVENTS) & READABLE:
                break
            found.append(read(_parts(sock)))
        return found

    def is_lost(self) -> bool:
        """Whether the connection has broken since this was last asked."""
        lost = False
        while _monitored(self.monitor) is not None:
            lost = True
        return lost

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send to the node, as soon as the connection stands."""
        _send(self.socket, parts)

    def close(self) -> None:
        """Close the connection; what waits to be sent gets `linger_ms`."""
        _close(self.socket, self.monitor)


class Waiter:
    """Waits for sockets and file descriptors, and reads those that are ready.

    Sockets that had something the last time are asked first, at most `STREAK` times in a row: under
    load they mostly have more, and a poll costs as much as a message.
    """

    def __init__(self) -> None:
        self._poller = zmq.Poller()
        self._readers: dict[Socket | int, Callable[[], list[Any]]] = {}
        self._busy: list[Socket] = []
        self._streak = 0

    def add(self, source: Socket | int, reader: Callable[[], list[Any]]) -> None:
        """Call `reader` when something can be read from this socket or descriptor.

        A socket's reader is also called when nothing can be read, and then returns nothing.
        """
        self._readers[source] = reader
        self._poller.register(source, zmq.POLLIN)

    def remove(self, source: Socket | int) -> None:
        """No longer wait for this one; before it is closed."""
        del self._readers[source]
        self._poller.unregister(source)
        self._busy.clear()

    def wait(self, timeout_s: float | None) -> list[Any]:
        """What the readers of all that is ready return; nothing after `timeout_s` seconds.

        None waits for ever, and the wait never ends early.
        """
        found: list[Any] = []
        if self._streak < STREAK:
            for source in self._busy:
                found += self._readers[source]()
            if found:
                self._streak += 1
                return found
        self._streak = 0
        self._busy.clear()
        timeout_ms = None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))
        for source, _ in self._poller.poll(timeout_ms):
            found += self._readers[source]()
            if not isinstance(source, int):
                self._busy.append(source)
        return found


def _limit(sock: Socket, max_bytes: int) -> None:
    sock.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    sock.setsockopt(zmq.SNDHWM, 0)
    sock.setsockopt(zmq.RCVHWM, WAITING)
    sock.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)


def _parts(sock: Socket) -> list[Part]:
    """The parts of a message that is there, or the rest of it; at most `MAX_PARTS` are kept."""
    part = sock.recv(copy=False)
    parts = [part]
    while part.more:
        part = sock.recv(copy=False)
        if len(parts) < MAX_PARTS:
            parts.append(part)
    return parts


def _descriptor(part: Part) -> int:
    """The file descriptor that a part came from; -1 if ZeroMQ does not tell."""
    try:
        return int(part.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def _send(sock: Socket, parts: Sequence[Buffer]) -> None:
    for part in parts[:-1]:
        sock.send(part, zmq.SNDMORE)
    last = parts[-1]
    if memoryview(last).nbytes < COPY_BELOW_BYTES:
        sock.send(last)
    else:
        sock.send(last, copy=False)


def _monitored(monitor: Socket) -> tuple[int, int] | None:
    """The next event of a socket's monitor and its value, if any (zmq_socket_monitor(3))."""
    try:
        event, _ = monitor.recv_multipart(zmq.DONTWAIT)
    except zmq.Again:
        return None
    number, value = struct.unpack("=Hi", event)
    return number, value


def _close(sock: Socket, monitor: Socket) -> None:
    if not sock.closed:
        sock.disable_monitor()
        monitor.close(0)
        sock.close()


def _bind(sock: Socket, address: str) -> None:
    if address.startswith("tcp://["):
        sock.setsockopt(zmq.IPV6, 1)
    try:
        if address.startswith("ipc://"):
            _refuse_taken(address.removeprefix("ipc://"))
        sock.bind(address)
    except (zmq.ZMQError, OSError) as error:
        sock.close(0)
        why = error.strerror or str(error)
        hint = HINTS.get(error.errno or 0, "")
        raise AddressError(f"cannot listen on {address!r}: {why}{hint}") from error


def _refuse_taken(path: str) -> None:
    """ZeroMQ takes over a Unix socket's path without asking; ask whether anybody is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
