"""Sockets: with `nodes.waiter` and `nodes.curve` all of `nodes` that knows ZeroMQ.

A `Listener` is a bound ROUTER, a `Dialler` a connected DEALER. Sending never blocks or drops: what
waits to be sent on data connections is bounded by credits, so it has no high-water mark. Receive
queues have one, so that a peer that floods us is slowed down by its own connection. Tensors go out
and come in without being copied unless they are small: a very small message lies in a receive
buffer that it shares with its neighbours, would keep all of it alive, and may be unaligned. So on
its way from one engine to the next a tensor is copied at most once in user space (one of up to
`SHARED_BELOW_BYTES`, twice). What was received lives as long as anything refers to its payload.

A connection is cut off for real: the file descriptor that a message came from (`ZMQ_SRCFD`) is
shut down, and what still arrives under its routing id is dropped. So is one too many, one that does
not greet in time, and one whose key is no longer admitted (`nodes.curve`).
"""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import zmq

from nodes.core.errors import NodeError
from nodes.curve import OVERHEAD_BYTES, Context, caller, guard, identify
from nodes.endpoints import GONE, HINTS, NO_HANDSHAKE, STRANGER, refuse_taken, shut
from nodes.keys import CONTROL, DATA
from nodes.waiter import BATCH

COPY_BELOW_BYTES = 1 << 18
"""Payloads shorter than this are copied when they are sent: that is cheaper than being told, by a
thread of pyzmq's, when their memory is free again."""

SHARED_BELOW_BYTES = 1 << 13
"""Payloads up to this length are copied when they arrive: ZeroMQ reads so much at once, and leaves
several messages where it has read them. A longer one gets memory of its own, aligned to 8 bytes."""

MAX_PARTS = 3
"""A message has at most a header and a payload; one part more shows that it had too many."""

MAX_CUT_OFF = 1024
"""Routing ids of cut-off peers that are remembered."""

WAITING = 64
"""Messages from one peer that may wait to be read; then its connection is no longer read."""

MAX_ANSWERS = 1000
"""Answers that may wait for somebody who asks and does not listen; a launcher leaves a few."""

HEARTBEAT_MS = 5_000
SILENCE_MS = 30_000
"""A peer machine that answers no heartbeat for so long is gone (its process's end shows at once);
long enough for a large tensor on a slow link, behind which heartbeats wait."""

HANDSHAKE_MS = 5_000
"""A stranger that has not made itself known after so long is cut off; a handshake takes a few
milliseconds, or as long as the agent's loop is busy."""

CLOSING_MS = 1_000
"""How long a port may take to close before it is opened again; it takes less than one."""

MAX_CONNECTIONS = 256
"""Connections that a port holds at most unless told otherwise; a cluster needs one per node."""

EVENTS: Any = int(zmq.EVENTS)
READABLE: Any = int(zmq.POLLIN)
"""Asked for before each message: the exception after the last one would cost more. Plain numbers,
because members of pyzmq's enumerations take twice as long."""

MORE_FOLLOWS, DO_NOT_WAIT = int(zmq.SNDMORE), int(zmq.DONTWAIT)

REJECTED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
BARRED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | REJECTED

Socket: TypeAlias = "zmq.Socket[bytes]"

Part: TypeAlias = zmq.Frame
"""A received part: `buffer` is a memoryview of its bytes, `bytes` a copy of them."""

Read = TypeVar("Read")

Buffer: TypeAlias = bytes | memoryview
"""What can be sent as it lies in memory; C-contiguous (`array.data` of a NumPy array that is)."""


class AddressError(NodeError):
    """An address cannot be listened on or dialled: which, and why."""


class Listener:
    """A bound ROUTER: receives from whoever dials, answers by routing id.

    `address` is where it really listens (a port of 0 is replaced by the one that was found); `port`
    is what the doorkeeper calls it. Raises `AddressError` if that is impossible.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        max_bytes: int,
        linger_ms: int = 0,
        port: str = DATA,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.socket: Socket = context.zmq.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket.setsockopt(zmq.LINGER, linger_ms)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        _limit(self.socket, max_bytes)
        if port == CONTROL:
            self.socket.setsockopt(zmq.SNDHWM, MAX_ANSWERS)
        self.keyring = context.keys_for(address)
        self.port = port
        if self.keyring is not None:
            guard(self.socket, self.keyring.secret, port)
        self.monitor = self.socket.get_monitor_socket(
            REJECTED | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
        )
        try:
            _bind(self.socket, address)
        except AddressError:
            _close(self.socket, self.monitor)
            raise
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._max_connections = max_connections
        self._connections: dict[int, None] = {}
        self._cut_off: dict[bytes, None] = {}
        self._peers: dict[bytes, int] = {}
        self._keys: dict[bytes, bytes] = {}
        self._gone: list[bytes | str] = []

    def receive(self, read: Callable[[bytes, list[Part]], Read]) -> list[Read]:
        """What `read` makes of the messages that have come in (routing id, parts).

        If it returns less than `BATCH`, nothing is left.
        """
        sock, peers = self.socket, self._peers
        found: list[Read] = []
        while len(found) < BATCH and sock.get(EVENTS) & READABLE:
            peer = sock.recv()
            parts = _parts(sock)
            if peer not in peers:
                if peer in self._cut_off:
                    continue
                self._look()  # its descriptor may have been that of one who has closed
                descriptor = _descriptor(parts[0])
                if descriptor >= 0 and descriptor not in self._connections:
                    continue  # it has closed before it was heard, and nobody would tell of it again
                peers[peer] = descriptor
                if not self._knows(peer, parts[0]):
                    self.cut_off(peer)
                    continue
            found.append(read(peer, parts))
        return found

    def _knows(self, peer: bytes, part: Part) -> bool:
        """Whether a peer that speaks for the first time is still admitted; notes its key."""
        if self.keyring is None:
            return True
        key = self._keys[peer] = caller(part) or b""
        return self.keyring.admits(self.port, key)

    def key_of(self, peer: bytes) -> bytes:
        """The public key of a peer that has spoken over a guarded connection; else nothing."""
        return self._keys.get(peer, b"")

    @property
    def has_lost(self) -> bool:
        """Whether `receive` has met with something that `closed` is to tell."""
        return bool(self._gone)

    def closed(self) -> list[bytes | str]:
        """The peers whose connections have closed; a sentence for one that never had any."""
        self._look()
        gone, self._gone = self._gone, []
        return gone + self._thin_out()

    def _look(self) -> None:
        """Take in what has happened to connections; all of that is earlier than what they say."""
        while (happened := _monitored(self.monitor)) is not None:
            event, descriptor = happened
            if event & REJECTED:
                self._gone.append(f"no ZeroMQ handshake ({zmq.Event(event).name})")
                continue
            if event == zmq.EVENT_ACCEPTED:
                self._connections[descriptor] = None
                continue
            if event == zmq.EVENT_CLOSED:
                continue
            self._connections.pop(descriptor, None)
            # Descriptors are used again: of two peers that had this one, the earlier has closed.
            peer = next((p for p, known in self._peers.items() if known == descriptor), None)
            if peer is not None:
                self._forget(peer)

    def _forget(self, peer: bytes) -> None:
        """Tell next time that a peer is gone, unless it was told before."""
        if self._peers.pop(peer, None) is not None:
            self._keys.pop(peer, None)
            self._gone.append(peer)

    def _thin_out(self) -> list[bytes | str]:
        """Close the newest connections if there are too many."""
        most = self._max_connections
        surplus = list(self._connections)[most:]
        for descriptor in surplus:
            del self._connections[descriptor]
            shut(descriptor)
        return [f"more than {most} connections on the {self.port} port"] * len(surplus)

    def withdrawn(self) -> list[bytes]:
        """The peers whose keys were admitted when they came and are no longer."""
        ring = self.keyring
        if ring is None:
            return []
        return [peer for peer, key in self._keys.items() if not ring.admits(self.port, key)]

    def renew(self) -> None:
        """Show the keyring's present secret to whoever dials from now on.

        Connections that stand are lost by it. Raises `AddressError` if the address is gone.
        """
        if self.keyring is None:
            return
        self.socket.unbind(self.address)
        closed = None
        while closed != zmq.EVENT_CLOSED and self.monitor.poll(CLOSING_MS):
            closed, _ = _monitored(self.monitor) or (None, 0)
        for known in (self._peers, self._keys, self._connections):
            known.clear()
        guard(self.socket, self.keyring.secret, self.port)
        _bind(self.socket, self.address)

    def send(self, peer: bytes, parts: Sequence[Buffer]) -> bool:
        """Send to a peer; False if it does not listen or is gone, which `closed` then tells."""
        try:
            self.socket.send(peer, MORE_FOLLOWS | DO_NOT_WAIT)
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH:
                self._forget(peer)  # the end of its connection was perhaps told of before it spoke
            return False
        _send(self.socket, parts)
        return True

    def cut_off(self, peer: bytes) -> None:
        """Close a peer's connection and drop what it has sent before."""
        if len(self._cut_off) >= MAX_CUT_OFF:
            del self._cut_off[next(iter(self._cut_off))]
        self._cut_off[peer] = None
        self._keys.pop(peer, None)
        shut(self._peers.pop(peer, -1))

    def close(self) -> None:
        """Stop listening; what waits to be sent gets `linger_ms`."""
        _close(self.socket, self.monitor)


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
        _limit(self.socket, max_bytes)
        if server is not None and context.keyring is not None:
            identify(self.socket, context.keyring.secret, server)
        self.monitor = self.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | BARRED)
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
            found.append(read(_parts(sock)))
        return found

    def lost(self) -> str | None:
        """Why there is no connection any more, if it has broken since this was last asked."""
        why = None
        while (happened := _monitored(self.monitor)) is not None:
            event, _ = happened
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                why = STRANGER
            elif event & REJECTED:
                why = why or NO_HANDSHAKE
            else:
                why = why or GONE
        if why not in (None, GONE):
            self.socket.setsockopt(zmq.LINGER, 0)  # nothing will ever get through
        return why

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send to the node, as soon as the connection stands.

        Nothing can be sent where this node was turned away, as `lost` tells: ZeroMQ has given that
        connection up and would wait for ever.
        """
        with contextlib.suppress(zmq.Again):
            _send(self.socket, parts, DO_NOT_WAIT)

    def close(self) -> None:
        """Close the connection; what waits to be sent gets `linger_ms`."""
        _close(self.socket, self.monitor)


def start_releasing() -> None:
    """Start pyzmq's thread that gives up what was sent without a copy, as a thread of this one."""
    zmq.Frame(bytearray(1), copy=False)


def _limit(sock: Socket, max_bytes: int) -> None:
    sock.setsockopt(zmq.MAXMSGSIZE, max_bytes + OVERHEAD_BYTES)
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


def _send(sock: Socket, parts: Sequence[Buffer], flags: int = 0) -> None:
    for part in parts[:-1]:
        sock.send(part, MORE_FOLLOWS | flags)
    last = parts[-1]
    if (len(last) if type(last) is bytes else memoryview(last).nbytes) < COPY_BELOW_BYTES:
        sock.send(last, flags)
    else:
        sock.send(last, flags, copy=False)


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
            refuse_taken(address.removeprefix("ipc://"))
        sock.bind(address)
    except (zmq.ZMQError, OSError) as error:
        why = error.strerror or str(error)
        hint = HINTS.get(error.errno or 0, "")
        raise AddressError(f"cannot listen on {address!r}: {why}{hint}") from error
