"""Opens the ports of a node's slots: a control port for each, and a data port after it.

Slot k = 1, 2, … of a node at port p has its control port at p + 2(k − 1) and its data port after
that. The parent keeps these sockets open as long as it runs, so the kernel completes connections
whether or not an agent runs, and keeps them in the socket's queue until an agent accepts them. The
parent itself accepts nothing.
"""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from nodes.core.slots import MOST_SLOTS
from nodes.host.listening import bind_hint
from nodes.protocol.addresses import host_of, slot_address
from nodes.protocol.errors import NodeError

BACKLOG = 4096
"""Connections that may wait to be accepted, if the system allows that."""

MOST_TRIES = 64
"""How many times to look for free ports where none is named."""

UNCLAIMED = range(10_240, 32_768, 2 * MOST_SLOTS)
"""First ports to choose from: Linux gives those above to connections, which may use many for a
minute after they have ended, so that hardly two neighbours are free."""


@dataclass(frozen=True, slots=True)
class SlotPorts:
    """The listening sockets of one slot, and the address of its control port."""

    number: int
    address: str
    control: socket.socket
    data: socket.socket


def open_ports(address: str, slots: int) -> list[SlotPorts]:
    """Open the ports of all slots; if the port of `address` is 0, any that are free.

    Raises NodeError if one cannot be opened.
    """
    if not address.endswith(":0"):
        return _opened(address, slots)
    host = address.rpartition(":")[0]
    for port in random.sample(UNCLAIMED, MOST_TRIES):
        with contextlib.suppress(NodeError):
            return _opened(f"{host}:{port}", slots)
    raise NodeError(f"cannot listen on {address!r}: this machine has no {2 * slots} free ports")


def _opened(address: str, slots: int) -> list[SlotPorts]:
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(1, slots + 1):
            control = slot_address(address, number)
            host, _, port = control.rpartition(":")
            pair = [_listening(each) for each in (control, f"{host}:{int(port) + 1}")]
            for each in pair:
                stack.callback(each.close)
            found.append(SlotPorts(number, control, *pair))
        stack.pop_all()
        return found


def _listening(address: str) -> socket.socket:
    """Return a listening socket with the options that ZeroMQ sets on its own."""
    host, port = str(host_of(address)), int(address.rpartition(":")[2])
    try:
        for family, _, _, _, where in _resolved("0.0.0.0" if host == "*" else host, port):  # noqa: S104 - as the user says
            listener = socket.socket(family, socket.SOCK_STREAM)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                listener.bind(where)
                listener.listen(BACKLOG)
                listener.setblocking(False)
            except BaseException:
                listener.close()
                raise
            return listener
    except socket.gaierror as error:
        problem: OSError = OSError(errno.ENODEV, str(error.strerror))
    except OSError as error:
        problem = error
    raise NodeError(
        f"cannot listen on {address!r}: {problem.strerror}{bind_hint(problem.errno)}"
    ) from problem


def _resolved(host: str, port: int) -> Iterator[tuple[int, int, int, str, tuple[str, int]]]:
    flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
    yield from socket.getaddrinfo(  # type: ignore[misc]
        "127.0.0.1" if host == "localhost" else host, port, type=socket.SOCK_STREAM, flags=flags
    )
