"""The gate of a listening port: it watches connections below ZeroMQ until their owners are known.

ZeroMQ tells which connections come and go (`Gate.came`, `Gate.left`), and the port which of them
have spoken (`Gate.heard`). Which one has to go if there are too many, `nodes.core.admission` says.

On a guarded port, more is known of a connection that has not spoken, from the kernel's count of its
bytes (`TCP_INFO`). If more of our bytes have been acknowledged than a stranger is ever sent, its
owner has been admitted, and it stays. If it has sent more than a handshake takes before that, it is
closed; ZeroMQ itself would read a handshake that is as long as the longest message that the port
takes. A kernel without these counts (before Linux 4.1) leaves that bound to ZeroMQ.

Nothing is looked at while nobody knocks.

Connections as the operating system knows them, below ZeroMQ.

They are ZeroMQ's to close. Its thread may do so at any moment, and the number of a descriptor that
was closed is used again for the next connection. So whoever is shut must still have the address
that it had when it came.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from nodes.core.admission import Admission, origin_of
from nodes.host.heap import SpareMemory
from nodes.host.usage import resident_bytes
from nodes.net.curve import ERROR_BYTES, GREETING_BYTES, HANDSHAKE_BYTES, WELCOME_BYTES

HINTS = {
    errno.EADDRINUSE: "; is another agent running there?",
    errno.ENODEV: "; give an IP address of this machine, or 0.0.0.0 for all that it has",
    errno.EADDRNOTAVAIL: "; give an IP address of this machine, or 0.0.0.0 for all that it has",
}
"""What to do about an address, by error number."""

Peer: TypeAlias = tuple[str, int]
"""A peer's IP address and port."""

NOBODY: Peer = ("", 0)

_TCP_INFO_BYTES = 136
_ACKNOWLEDGED_AND_RECEIVED = struct.Struct("=120xQQ")
"""`tcpi_bytes_acked` and `tcpi_bytes_received` in `struct tcp_info` (linux/tcp.h, since 4.1)."""


@dataclass(frozen=True, slots=True)
class ConnectionTraffic:
    """What a connection has carried: bytes that came, and bytes of ours that arrived."""

    received_bytes: int
    acknowledged_bytes: int


class Connection:
    """A connection of ZeroMQ's, by its descriptor and the family of its socket.

    It has no descriptor of its own: they may have run out. So it must be let go (`release`).
    Raises `OSError` if it has been closed.
    """

    def __init__(self, descriptor: int, family: int) -> None:
        self._socket = socket.socket(family, socket.SOCK_STREAM, 0, fileno=descriptor)
        self.peer = self._peer()

    def traffic(self) -> ConnectionTraffic | None:
        """What has been carried; None if it has ended, or the system does not tell."""
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            acknowledged, received = _ACKNOWLEDGED_AND_RECEIVED.unpack(info)
        except (OSError, struct.error):
            return None
        return ConnectionTraffic(received, acknowledged)

    def shut(self) -> None:
        """End it, unless its number is that of another one by now."""
        if self._peer() == self.peer:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Leave its descriptor to ZeroMQ."""
        self._socket.detach()

    def _peer(self) -> Peer:
        try:
            host, port = self._socket.getpeername()[:2]
        except (OSError, ValueError):  # it has ended, or is a Unix socket
            return NOBODY
        return str(host), int(port)


def refuse_taken(path: str) -> None:
    """ZeroMQ takes over a Unix socket's path without asking; ask whether anybody is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


UNKNOWN_PER_KNOWN = 4
"""Room for connections whose owners are not known, as a multiple of that for the others: the more
there is, the more rarely one is closed before ZeroMQ does so, and the longer a handshake may take
while somebody opens connections as fast as can be."""

LOOK_S, LONGEST_LOOK_S = 0.05, 1.0
"""How often the process's memory is looked at while strangers are there, and how often each of them
is at least."""

GROWN_BYTES = 2 << 20
"""If the process has grown by so much since then, each of them is looked at: with hundreds of
silent ones, asking the kernel about each every time would cost a percent of a processor."""

ORIGINS = 64
"""Addresses whose connections are counted apart; beyond, they are counted together."""

SENT_TO_STRANGERS_BYTES = GREETING_BYTES + WELCOME_BYTES + ERROR_BYTES

TOO_MANY = "were closed to make room for others, before their owners had made themselves known"
TOO_MUCH = f"were closed because they sent more than {HANDSHAKE_BYTES} bytes before any handshake"
GREEDY = "were closed because nobody else has as many"
NO_HANDSHAKE = "ended before the handshake did"


class Gate:
    """Of one port, whose sockets are of this `family`; `most` of its connections may be known.

    A handshake on a guarded port lasts `handshake_s` at most; ZeroMQ sees to that.
    """

    def __init__(
        self, port: str, most: int, family: int, *, is_guarded: bool, handshake_s: float
    ) -> None:
        self._port = port
        self._family = family
        self._is_guarded = is_guarded
        self._handshake_s = handshake_s
        self._admission = Admission(most, UNKNOWN_PER_KNOWN * most)
        self._connections: dict[int, Connection] = {}
        self._watched: dict[int, float] = {}
        """Descriptor → when a handshake on it is over in any case; the first is over first."""
        self._look_s = self._judge_s = 0.0
        self._judged_bytes = 0
        self._spare = SpareMemory()
        self._counted: Counter[tuple[str, str]] = Counter()
        self._changed: dict[tuple[str, str], None] = {}

    def __contains__(self, descriptor: int) -> bool:
        return descriptor in self._admission

    @property
    def due_s(self) -> float | None:
        """When to `look`, on the monotonic clock; None while there is nothing to look at."""
        if self._watched:
            return self._look_s
        return self._spare.due_s

    def opened(self, descriptor: int) -> None:
        """ZeroMQ has accepted a connection."""
        self.closed(descriptor)
        try:
            connection = Connection(descriptor, self._family)
        except OSError:
            return  # it has been closed, as is about to be told
        self._connections[descriptor] = connection
        self._admission.opened(descriptor, origin_of(connection.peer[0]))
        if self._is_guarded:
            now_s = time.monotonic()
            if not self._watched:
                self._look_s = now_s + LOOK_S
            self._watched[descriptor] = now_s + self._handshake_s

    def heard(self, descriptor: int, owner: str = "") -> None:
        """A connection has spoken; it is its `owner`'s, or its address's if that is not known."""
        self._admission.identified(descriptor, owner or self._admission.origin(descriptor))
        self._watched.pop(descriptor, None)

    def closed(self, descriptor: int) -> None:
        """ZeroMQ has closed a connection, or given it up."""
        self._admission.closed(descriptor)
        self._watched.pop(descriptor, None)
        connection = self._connections.pop(descriptor, None)
        if connection is not None:
            connection.release()

    def failed(self, descriptor: int) -> None:
        """A handshake has failed; ZeroMQ may have read much before it saw that."""
        if descriptor in self:
            self._count(descriptor, NO_HANDSHAKE)
            self._spare.freed(time.monotonic())

    def clear(self) -> None:
        """All connections have been given up."""
        for descriptor in tuple(self._connections):
            self.closed(descriptor)

    def shut(self, descriptor: int) -> None:
        """Close a connection."""
        connection = self._connections.get(descriptor)
        if connection is not None:
            connection.shut()
        self.closed(descriptor)

    def make_room(self) -> None:
        """Close the connections that are too many."""
        while (descriptor := self._admission.next_to_close()) is not None:
            if self._admission.is_known(descriptor):
                self._turn_away(descriptor, GREEDY)
            elif self._is_admitted(descriptor):
                self._admission.identified(descriptor, self._admission.origin(descriptor))
            else:
                self._turn_away(descriptor, TOO_MANY)

    def look(self) -> None:
        """Close whoever sends too much before it is admitted, and give back what that took."""
        now_s = time.monotonic()
        if self._watched and now_s >= self._look_s:
            self._look_s = now_s + LOOK_S
            held_bytes = resident_bytes()
            if now_s >= self._judge_s or held_bytes >= self._judged_bytes + GROWN_BYTES:
                self._judge_s, self._judged_bytes = now_s + LONGEST_LOOK_S, held_bytes
                self._judge_all(now_s)
        self._spare.look(now_s)

    def news(self) -> list[str]:
        """Whose connections have ended or been closed since this was last asked, in sentences."""
        changed, self._changed = self._changed, {}
        return [
            f"connections from {origin or 'this machine'} to the {self._port} port {why} "
            f"({self._counted[origin, why]} by now)"
            for origin, why in changed
        ]

    def _judge_all(self, now_s: float) -> None:
        for descriptor, until_s in tuple(self._watched.items()):
            if now_s >= until_s:  # ZeroMQ has closed it by now, or its owner was admitted
                del self._watched[descriptor]
            else:
                self._judge(descriptor, now_s)

    def _judge(self, descriptor: int, now_s: float) -> None:
        traffic = self._connections[descriptor].traffic()
        if traffic is None:
            return
        if traffic.acknowledged_bytes > SENT_TO_STRANGERS_BYTES:
            del self._watched[descriptor]
        elif traffic.received_bytes > HANDSHAKE_BYTES:
            self._turn_away(descriptor, TOO_MUCH)
            self._spare.freed(now_s)

    def _is_admitted(self, descriptor: int) -> bool:
        traffic = self._connections[descriptor].traffic() if self._is_guarded else None
        return traffic is not None and traffic.acknowledged_bytes > SENT_TO_STRANGERS_BYTES

    def _turn_away(self, descriptor: int, why: str) -> None:
        self._count(descriptor, why)
        self.shut(descriptor)

    def _count(self, descriptor: int, why: str) -> None:
        kind = self._admission.origin(descriptor), why
        if kind not in self._counted and len(self._counted) >= ORIGINS:
            kind = "various addresses", why
        self._counted[kind] += 1
        self._changed[kind] = None
