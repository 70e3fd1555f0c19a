"""The listening end of connections: a bound ROUTER that identifies the peer of each connection.

A connection is cut off by shutting down the file descriptor that its message came from
(`ZMQ_SRCFD`); messages that still arrive under its routing id are dropped. This ends peers that
break the protocol, excess connections and those that send too much before they are admitted
(`nodes.net.gate`), those whose handshake takes too long, and those whose key is no longer admitted
(`nodes.net.keys`).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Sequence

import zmq

from nodes.host.listening import bind_hint
from nodes.net.curve import Context, secure_listener, sender_key
from nodes.net.gate import Gate
from nodes.net.keys import DATA
from nodes.net.sockets import (
    DO_NOT_WAIT,
    EVENTS,
    HANDSHAKE_ERRORS,
    MORE_FOLLOWS,
    READABLE,
    AddressError,
    Buffer,
    Part,
    Read,
    Socket,
    SocketOptions,
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
"""Answers that may wait for a peer that does not receive; a launcher leaves a few unread."""

HANDSHAKE_MS = 30_000
"""The time limit of a handshake, which takes a few milliseconds, or as long as the agent's loop is
busy. A stranger who reconnects whenever its connection is closed costs an agent a sixth of what it
would cost with a limit of 5 s, and keeps nobody out (`nodes.net.gate`)."""

CLOSING_MS = 1_000
"""How long to wait for a port to close before it is opened again; it takes less than 1 ms."""

MAX_CONNECTIONS = 256
"""The default limit of identified connections of a port; a cluster needs one per node. The limit of
others is a multiple of it (`nodes.net.gate.UNKNOWN_PER_KNOWN`)."""

BACKLOG = 4096
"""Connections that may wait to be accepted, if the system allows that. Beyond, a dialling end gets
no answer and tries again a second later.
"""


class Listener:
    """A bound ROUTER, which receives from all that dial it and answers by routing id.

    The attribute `address` is where it listens; the system has chosen the port if 0 was given. With
    a `descriptor`, that socket listens there already, and stays open when this end closes.
    `name` is that of the port (`CONTROL` or `DATA`), by which keys are admitted. Raises
    `AddressError` if it cannot listen there.
    """

    def __init__(
        self,
        context: Context,
        address: str,
        options: SocketOptions,
        name: str = DATA,
        max_connections: int = MAX_CONNECTIONS,
        descriptor: int | None = None,
    ) -> None:
        self.socket: Socket = context.zmq.socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        options.apply(self.socket)
        self.socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self.keyring = context.keys_for(address)
        self.name = name
        if self.keyring is not None:
            secure_listener(self.socket, self.keyring.secret, name)
        self.socket.setsockopt(zmq.BACKLOG, BACKLOG)
        self.monitor = open_monitor(
            self.socket,
            HANDSHAKE_ERRORS | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED,
        )
        try:
            _bind(self.socket, address, descriptor)
        except AddressError:
            close_socket(self.socket, self.monitor)
            raise
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._given = descriptor
        self._gate = Gate(
            name,
            max_connections,
            family_of(address),
            is_guarded=self.keyring is not None,
            handshake_s=HANDSHAKE_MS / 1000,
        )
        self._has_failed = False
        self._cut_off: dict[bytes, None] = {}
        self._peers: dict[bytes, int] = {}
        self._keys: dict[bytes, bytes] = {}
        self._closed: list[bytes | str] = []

    def receive(self, read: Callable[[bytes, list[Part]], Read]) -> list[Read]:
        """Return `read(routing id, parts)` for the messages that have arrived.

        If it returns fewer than `BATCH`, no message is left.
        """
        sock, peers = self.socket, self._peers
        found: list[Read] = []
        while len(found) < BATCH and sock.get(EVENTS) & READABLE:
            peer = sock.recv()
            parts = receive_parts(sock)
            if peer not in peers:
                if peer in self._cut_off:
                    continue
                self._read_monitor()  # its descriptor may have been that of a closed connection
                descriptor = _descriptor(parts[0])
                if descriptor >= 0 and descriptor not in self._gate:
                    continue  # it has closed already, and no event would remove it again
                peers[peer] = descriptor
                if not self._admits(peer, parts[0]):
                    self.cut_off(peer)
                    continue
                self._gate.identified(descriptor, self.peer_key(peer).hex())
            found.append(read(peer, parts))
        return found

    def _admits(self, peer: bytes, part: Part) -> bool:
        """Note the key of a peer at its first message; return whether it is still admitted."""
        if self.keyring is None:
            return True
        key = self._keys[peer] = sender_key(part) or b""
        return self.keyring.admits(self.name, key)

    def peer_key(self, peer: bytes) -> bytes:
        """Return a peer's public key; empty if its connection is not guarded."""
        return self._keys.get(peer, b"")

    @property
    def has_closed(self) -> bool:
        """Whether `take_closed` has connections to return."""
        return bool(self._closed)

    @property
    def due_s(self) -> float | None:
        """When to call `take_closed` at the latest, on the monotonic clock; None for never."""
        return self._gate.due_s

    def take_closed(self) -> list[bytes | str]:
        """Return the peers whose connections have closed since the last call.

        Sentences report connections that closed without having sent a message.
        """
        self._read_monitor()
        self._gate.close_excess()
        self._gate.check()
        gone, self._closed = self._closed, []
        return gone + self._gate.take_reports()

    def _read_monitor(self) -> None:
        """Handle the monitor's events, which are earlier than the messages still to be read."""
        while (happened := next_event(self.monitor)) is not None:
            self._note(*happened)

    def _note(self, event: int, descriptor: int) -> None:
        gate = self._gate
        if event & HANDSHAKE_ERRORS:
            self._has_failed = True  # the next event is the end of this connection
        elif event == zmq.EVENT_ACCEPTED:
            gate.opened(descriptor)
        elif event == zmq.EVENT_DISCONNECTED:
            if self._has_failed:
                gate.handshake_failed(descriptor)
                self._has_failed = False
            gate.closed(descriptor)
            # Of two peers with this descriptor, the earlier one has closed.
            peer = next((p for p, known in self._peers.items() if known == descriptor), None)
            if peer is not None:
                self._forget(peer)

    def _forget(self, peer: bytes) -> None:
        """Remove a peer, and report it once in `take_closed`."""
        if self._peers.pop(peer, None) is not None:
            self._keys.pop(peer, None)
            self._closed.append(peer)

    def withdrawn_peers(self) -> list[bytes]:
        """Return the connected peers whose keys are no longer admitted."""
        ring = self.keyring
        if ring is None:
            return []
        return [peer for peer, key in self._keys.items() if not ring.admits(self.name, key)]

    def rebind(self) -> None:
        """Listen again with the keyring's present secret.

        All connections are lost. Raises `AddressError` if the address can no longer be used.
        """
        if self.keyring is None:
            return
        self._unbind()
        secure_listener(self.socket, self.keyring.secret, self.name)
        _bind(self.socket, self.address, self._given)

    def close_if_unused(self) -> bool:
        """Accept no more connections if there is none; return whether that is so.

        A connection to a socket that was given by its `descriptor` is not refused afterwards: it
        waits there for another process. One that is accepted at this very moment is closed, and its
        other end dials again.
        """
        self._read_monitor()
        if len(self._gate):
            return False
        if not self._unbind():
            return True
        _bind(self.socket, self.address, self._given)
        return False

    def _unbind(self) -> bool:
        """Stop listening, which closes all connections; return whether there were any."""
        self.socket.unbind(self.address)
        event = None
        while event != zmq.EVENT_CLOSED and self.monitor.poll(CLOSING_MS):
            event, descriptor = next_event(self.monitor) or (0, -1)
            self._note(event, descriptor)
        were_any = len(self._gate) > 0
        self._peers.clear()
        self._keys.clear()
        self._gate.clear()
        return were_any

    def send(self, peer: bytes, parts: Sequence[Buffer]) -> bool:
        """Send to a peer; return False if too many messages wait for it, or it is gone.

        A peer that is gone is reported by `take_closed`.
        """
        try:
            self.socket.send(peer, MORE_FOLLOWS | DO_NOT_WAIT)
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH:
                self._forget(peer)  # its connection may have closed before its first message
            return False
        send_parts(self.socket, parts)
        return True

    def cut_off(self, peer: bytes) -> None:
        """Close a peer's connection, and drop its messages that are still unread."""
        if len(self._cut_off) >= MAX_CUT_OFF:
            del self._cut_off[next(iter(self._cut_off))]
        self._cut_off[peer] = None
        self._keys.pop(peer, None)
        self._gate.close(self._peers.pop(peer, -1))

    def close(self) -> None:
        """Stop listening; messages that wait to be sent have the options' `linger_ms`."""
        close_socket(self.socket, self.monitor)
        self._gate.clear()


def _descriptor(part: Part) -> int:
    """Return the file descriptor that a part came from; -1 if ZeroMQ does not report it."""
    try:
        return int(part.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1


def family_of(address: str) -> int:
    """Return the address family of sockets at a ZeroMQ address."""
    if address.startswith("ipc://"):
        return socket.AF_UNIX
    return socket.AF_INET6 if address.startswith("tcp://[") else socket.AF_INET


def _refuse_taken(path: str) -> None:
    """Raise `OSError` if a process listens at a Unix socket's path, which ZeroMQ would replace."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _bind(sock: Socket, address: str, descriptor: int | None = None) -> None:
    if address.startswith("tcp://["):
        sock.setsockopt(zmq.IPV6, 1)
    try:
        if descriptor is not None:
            sock.setsockopt(zmq.USE_FD, os.dup(descriptor))  # ZeroMQ closes its own
        elif address.startswith("ipc://"):
            _refuse_taken(address.removeprefix("ipc://"))
        sock.bind(address)
    except (zmq.ZMQError, OSError) as error:
        why = error.strerror or str(error)
        raise AddressError(
            f"cannot listen on {address!r}: {why}{bind_hint(error.errno)}"
        ) from error
