"""The listening end of connections: a bound ROUTER, and who is behind each of its connections.

A connection is cut off for real: the file descriptor that a message came from (`ZMQ_SRCFD`) is
shut down, and what still arrives under its routing id is dropped. So is one too many, one that says
too much before it is admitted (`nodes.net.gate`), one that does not greet in time, and one whose
key is no longer admitted (`nodes.net.curve`).
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Sequence

import zmq

from nodes.net.curve import Context, caller, guard
from nodes.net.gate import HINTS, Gate, refuse_taken
from nodes.net.keys import DATA
from nodes.net.sockets import (
    DO_NOT_WAIT,
    EVENTS,
    MORE_FOLLOWS,
    READABLE,
    REJECTED,
    AddressError,
    Buffer,
    ConnectionTerms,
    Part,
    Read,
    Socket,
    close_socket,
    next_event,
    open_monitor,
    receive_parts,
    send_parts,
)
from nodes.net.waiter import BATCH

MAX_CUT_OFF = 1024
"""Routing ids of cut-off peers that are remembered."""

MAX_ANSWERS = 1000
"""Answers that may wait for somebody who asks and does not listen; a launcher leaves a few."""

HANDSHAKE_MS = 30_000
"""A stranger that has not made itself known after so long is cut off; a handshake takes a few
milliseconds, or as long as the agent's loop is busy. Whoever opens a connection anew as soon as it
is closed costs an agent a sixth of what it would with 5 s, and keeps nobody out
(`nodes.net.gate`)."""

CLOSING_MS = 1_000
"""How long a port may take to close before it is opened again; it takes less than one."""

MAX_CONNECTIONS = 256
"""Connections that a port holds at most unless told otherwise, and as many again of those who have
not made themselves known; a cluster needs one per node."""

BACKLOG = 4096
"""Connections that wait to be accepted, where the system allows as many: beyond, callers are not
heard, and try again a second later."""


class Listener:
    """A bound ROUTER: receives from whoever dials, answers by routing id.

    `address` is where it really listens (a port of 0 is replaced by the one that was found); `port`
    is what the doorkeeper calls it. Raises `AddressError` if that is impossible.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        terms: ConnectionTerms,
        port: str = DATA,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.socket: Socket = context.zmq.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        terms.apply(self.socket)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self.keyring = context.keys_for(address)
        self.port = port
        if self.keyring is not None:
            guard(self.socket, self.keyring.secret, port)
        self.socket.setsockopt(zmq.BACKLOG, BACKLOG)
        self.monitor = open_monitor(
            self.socket,
            REJECTED | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED,
        )
        try:
            _bind(self.socket, address)
        except AddressError:
            close_socket(self.socket, self.monitor)
            raise
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._gate = Gate(
            port,
            max_connections,
            family_of(address),
            is_guarded=self.keyring is not None,
            handshake_s=HANDSHAKE_MS / 1000,
        )
        self._has_failed = False
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
            parts = receive_parts(sock)
            if peer not in peers:
                if peer in self._cut_off:
                    continue
                self._look()  # its descriptor may have been that of one who has closed
                descriptor = _descriptor(parts[0])
                if descriptor >= 0 and descriptor not in self._gate:
                    continue  # it has closed before it was heard, and nobody would tell of it again
                peers[peer] = descriptor
                if not self._knows(peer, parts[0]):
                    self.cut_off(peer)
                    continue
                self._gate.heard(descriptor, self.key_of(peer).hex())
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

    @property
    def due_s(self) -> float | None:
        """When `closed` is to be asked even if nothing happens, on the monotonic clock."""
        return self._gate.due_s

    def closed(self) -> list[bytes | str]:
        """The peers whose connections have closed; sentences on those that never had any."""
        self._look()
        self._gate.make_room()
        self._gate.look()
        gone, self._gone = self._gone, []
        return gone + self._gate.news()

    def _look(self) -> None:
        """Take in what has happened to connections; all of that is earlier than what they say."""
        gate = self._gate
        while (happened := next_event(self.monitor)) is not None:
            event, descriptor = happened
            if event & REJECTED:
                self._has_failed = True  # and ends, as the next event tells
            elif event == zmq.EVENT_ACCEPTED:
                gate.opened(descriptor)
            elif event == zmq.EVENT_DISCONNECTED:
                if self._has_failed:
                    gate.failed(descriptor)
                    self._has_failed = False
                gate.closed(descriptor)
                # Descriptors are used again: of two peers that had it, the earlier has closed.
                peer = next((p for p, known in self._peers.items() if known == descriptor), None)
                if peer is not None:
                    self._forget(peer)

    def _forget(self, peer: bytes) -> None:
        """Tell next time that a peer is gone, unless it was told before."""
        if self._peers.pop(peer, None) is not None:
            self._keys.pop(peer, None)
            self._gone.append(peer)

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
            closed, _ = next_event(self.monitor) or (None, 0)
        self._peers.clear()
        self._keys.clear()
        self._gate.clear()
        guard(self.socket, self.keyring.secret, self.port)
        _bind(self.socket, self.address)

    def send(self, peer: bytes, parts: Sequence[Buffer]) -> bool:
        """Send to a peer; False if it does not listen or is gone, which `closed` then tells."""
        try:
            self.socket.send(peer, MORE_FOLLOWS | DO_NOT_WAIT)
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH:
                self._forget(peer)  # its connection may have ended before it was heard
            return False
        send_parts(self.socket, parts)
        return True

    def cut_off(self, peer: bytes) -> None:
        """Close a peer's connection and drop what it has sent before."""
        if len(self._cut_off) >= MAX_CUT_OFF:
            del self._cut_off[next(iter(self._cut_off))]
        self._cut_off[peer] = None
        self._keys.pop(peer, None)
        self._gate.shut(self._peers.pop(peer, -1))

    def close(self) -> None:
        """Stop listening; what waits to be sent gets the terms' `linger_ms`."""
        close_socket(self.socket, self.monitor)
        self._gate.clear()


def _descriptor(part: Part) -> int:
    """The file descriptor that a part came from; -1 if ZeroMQ does not tell."""
    try:
        return int(part.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def family_of(address: str) -> int:
    """The family of the sockets at an address of ours."""
    if address.startswith("ipc://"):
        return socket.AF_UNIX
    return socket.AF_INET6 if address.startswith("tcp://[") else socket.AF_INET


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
