"""Connections as the operating system knows them, below ZeroMQ.

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
from dataclasses import dataclass
from typing import TypeAlias

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
