"""Limit the connections of a port, and close those that send too much before they are identified.

The listener reports which connections ZeroMQ has opened and closed, and which have sent a message
and are thereby identified. If there are too many, `nodes.core.admission` decides which to close.

On a guarded port, the kernel's byte counts (`TCP_INFO`) say more about a connection that has not
sent a message yet. If the other end has acknowledged more bytes than are ever sent to a stranger,
its key has been admitted, and the connection stays. If it has sent more than a handshake needs
before that, the connection is closed; ZeroMQ itself would read a handshake as long as the port's
longest message. On a kernel without these counts (before Linux 4.1), only ZeroMQ's bound holds.

While there is no unidentified connection, nothing is checked.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from nodes.core.admission import Admission, origin_of
from nodes.host.heap import HeapTrimmer
from nodes.host.usage import resident_bytes
from nodes.net.curve import ERROR_BYTES, GREETING_BYTES, HANDSHAKE_BYTES, WELCOME_BYTES

UNKNOWN_PER_KNOWN = 4
"""The limit of unknown connections, as a multiple of the limit of known ones. The higher it is, the
more rarely one is closed before ZeroMQ's own time limit, and the longer a handshake may take during
a flood of connections."""

CHECK_PERIOD_S, MAX_CHECK_AGE_S = 0.05, 1.0
"""The time between two checks of the process's memory while there are unidentified connections, and
the longest time between two checks of each of them."""

GROWN_BYTES = 2 << 20
"""If the process has grown by so much since the last check of all connections, they are checked
again at once. With hundreds of silent connections, checking each every time would cost one percent
of a processor."""

MAX_ORIGINS = 64
"""Addresses whose closed connections are counted apart; all others are counted together."""

SENT_TO_STRANGERS_BYTES = GREETING_BYTES + WELCOME_BYTES + ERROR_BYTES

DISPLACED = "were closed to make room for others, before their owners were identified"
TOO_LONG = f"were closed because they sent more than {HANDSHAKE_BYTES} bytes before any handshake"
LARGEST_OWNER = "were closed because there were too many, and their owner had the most"
NO_HANDSHAKE = "ended before the handshake did"

SocketAddress: TypeAlias = tuple[str, int]
"""An IP address and a port."""

NO_ADDRESS: SocketAddress = ("", 0)

_TCP_INFO_BYTES = 136
_ACKNOWLEDGED_AND_RECEIVED = struct.Struct("=120xQQ")
"""`tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info` (linux/tcp.h, since 4.1)."""


@dataclass(frozen=True, slots=True)
class ConnectionTraffic:
    """The bytes that were received over a connection, and the sent bytes that were acknowledged."""

    received_bytes: int
    acknowledged_bytes: int


class Connection:
    """A connection of ZeroMQ, by its file descriptor and the address family of its socket.

    ZeroMQ owns the descriptor and may close it at any moment; the next connection may then have the
    same number. It is not duplicated, because descriptors may have run out, so it must be released
    (`release`) and never closed here. Raises `OSError` if it has been closed.
    """

    def __init__(self, descriptor: int, family: int) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM, 0, fileno=descriptor)
        self.peer = self._peer()

    def traffic(self) -> ConnectionTraffic | None:
        """Return its byte counts; None if it has closed, or the kernel has no such counts."""
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            acknowledged, received = _ACKNOWLEDGED_AND_RECEIVED.unpack(info)
        except (OSError, struct.error):
            return None
        return ConnectionTraffic(received, acknowledged)

    def shut(self) -> None:
        """Shut the connection down, unless its descriptor belongs to another one by now."""
        if self._peer() == self.peer:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Give up the descriptor, which stays open for ZeroMQ."""
        self._socket.detach()

    def _peer(self) -> SocketAddress:
        try:
            host, port = self._socket.getpeername()[:2]
        except (OSError, ValueError):  # it has closed, or is a Unix socket
            return NO_ADDRESS
        return str(host), int(port)


class Gate:
    """The connections of one port, with at most `max_known` identified ones.

    `family` is the address family of its sockets. On a guarded port, ZeroMQ ends a handshake after
    `handshake_s` seconds.
    """

    def __init__(
        self, port: str, max_known: int, family: int, *, is_guarded: bool, handshake_s: float
    ) -> None:
        self._port = port
        self._family = family
        self._is_guarded = is_guarded
        self._handshake_s = handshake_s
        self._admission = Admission(max_known, UNKNOWN_PER_KNOWN * max_known)
        self._connections: dict[int, Connection] = {}
        self._watched: dict[int, float] = {}
        """Descriptor → when its handshake is over at the latest, in this order."""
        self._check_s = self._check_all_s = 0.0
        self._checked_bytes = 0
        self._trimmer = HeapTrimmer()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._unreported: dict[tuple[str, str], None] = {}

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._admission

    def __len__(self) -> int:
        return len(self._admission)

    @property
    def due_s(self) -> float | None:
        """When to call `check`, on the monotonic clock; None while there is nothing to check."""
        if self._watched:
            return self._check_s
        return self._trimmer.due_s

    def opened(self, descriptor: int) -> None:
        """Add a connection that ZeroMQ has accepted."""
        self.closed(descriptor)
        try:
            connection = Connection(descriptor, self._family)
        except OSError:
            return  # it has closed, which the monitor is about to report
        self._connections[descriptor] = connection
        self._admission.opened(descriptor, origin_of(connection.peer[0]))
        if self._is_guarded:
            now_s = time.monotonic()
            if not self._watched:
                self._check_s = now_s + CHECK_PERIOD_S
            self._watched[descriptor] = now_s + self._handshake_s

    def identified(self, descriptor: int, owner: str = "") -> None:
        """Note that a connection has sent a message; its owner is `owner`, or else its address."""
        self._admission.identified(descriptor, owner or self._admission.origin(descriptor))
        self._watched.pop(descriptor, None)

    def closed(self, descriptor: int) -> None:
        """Remove a connection that ZeroMQ has closed or abandoned."""
        self._admission.closed(descriptor)
        self._watched.pop(descriptor, None)
        connection = self._connections.pop(descriptor, None)
        if connection is not None:
            connection.release()

    def handshake_failed(self, descriptor: int) -> None:
        """Note that a handshake has failed, for which ZeroMQ may have used much memory."""
        if descriptor in self:
            self._count(descriptor, NO_HANDSHAKE)
            self._trimmer.schedule(time.monotonic())

    def clear(self) -> None:
        """Remove all connections."""
        for descriptor in tuple(self._connections):
            self.closed(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a connection."""
        connection = self._connections.get(descriptor)
        if connection is not None:
            connection.shut()
        self.closed(descriptor)

    def close_excess(self) -> None:
        """Close connections while there are too many."""
        while (descriptor := self._admission.next_to_close()) is not None:
            if self._admission.is_known(descriptor):
                self._reject(descriptor, LARGEST_OWNER)
            elif self._is_admitted(descriptor):
                self._admission.identified(descriptor, self._admission.origin(descriptor))
            else:
                self._reject(descriptor, DISPLACED)

    def check(self) -> None:
        """Close connections that send too much before they are admitted, and trim the heap."""
        now_s = time.monotonic()
        if self._watched and now_s >= self._check_s:
            self._check_s = now_s + CHECK_PERIOD_S
            held_bytes = resident_bytes()
            if now_s >= self._check_all_s or held_bytes >= self._checked_bytes + GROWN_BYTES:
                self._check_all_s, self._checked_bytes = now_s + MAX_CHECK_AGE_S, held_bytes
                self._check_all(now_s)
        self._trimmer.trim_if_due(now_s)

    def take_reports(self) -> list[str]:
        """Return a sentence on each address and reason for which connections were closed lately."""
        changed, self._unreported = self._unreported, {}
        return [
            f"connections from {origin or 'this machine'} to the {self._port} port {why} "
            f"({self._counted[origin, why]} so far)"
            for origin, why in changed
        ]

    def _check_all(self, now_s: float) -> None:
        for descriptor, until_s in tuple(self._watched.items()):
            if now_s >= until_s:  # by now ZeroMQ has closed it, or its key was admitted
                del self._watched[descriptor]
            else:
                self._check_traffic(descriptor, now_s)

    def _check_traffic(self, descriptor: int, now_s: float) -> None:
        traffic = self._connections[descriptor].traffic()
        if traffic is None:
            return
        if traffic.acknowledged_bytes > SENT_TO_STRANGERS_BYTES:
            del self._watched[descriptor]
        elif traffic.received_bytes > HANDSHAKE_BYTES:
            self._reject(descriptor, TOO_LONG)
            self._trimmer.schedule(now_s)

    def _is_admitted(self, descriptor: int) -> bool:
        traffic = self._connections[descriptor].traffic() if self._is_guarded else None
        return traffic is not None and traffic.acknowledged_bytes > SENT_TO_STRANGERS_BYTES

    def _reject(self, descriptor: int, why: str) -> None:
        self._count(descriptor, why)
        self.close(descriptor)

    def _count(self, descriptor: int, why: str) -> None:
        kind = self._admission.origin(descriptor), why
        if kind not in self._counted and len(self._counted) >= MAX_ORIGINS:
            kind = "various addresses", why
        self._counted[kind] += 1
        self._unreported[kind] = None
