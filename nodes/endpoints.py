"""Connections as the operating system knows them, below ZeroMQ."""

from __future__ import annotations

import contextlib
import errno
import os
import socket

HINTS = {
    errno.EADDRINUSE: "; is another agent running there?",
    errno.ENODEV: "; give an IP address of this machine, or 0.0.0.0 for all that it has",
    errno.EADDRNOTAVAIL: "; give an IP address of this machine, or 0.0.0.0 for all that it has",
}
"""What to do about an address, by error number."""

GONE = "it was closed at the other end, or the network went down"
STRANGER = "the other end does not admit this node's key"
NO_HANDSHAKE = (
    "there was no handshake: either the other end has another key than the one known of it here, "
    "or one of both has none"
)
"""Why a connection that was dialled does not stand."""


def shut(descriptor: int) -> None:
    """End the connection behind a file descriptor of ZeroMQ's; it stays ZeroMQ's to close."""
    with contextlib.suppress(OSError):
        connection = socket.socket(fileno=os.dup(descriptor))
        with connection:
            connection.shutdown(socket.SHUT_RDWR)


def refuse_taken(path: str) -> None:
    """ZeroMQ takes over a Unix socket's path without asking; ask whether anybody is there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
