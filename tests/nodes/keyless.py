"""Attacks ports as a host without keys: `python -m tests.nodes.keyless tcp://HOST:PORT …`.

It holds `--connections` to each address, all silent, and opens each again as soon as it is closed.
With `--churn` it resets each itself as soon as it is established, as fast as one processor can. (A
reset leaves no port in TIME_WAIT: others on this machine find free ports.) It prints the number of
connections that it has opened when all have been opened once, and again when there is input on
standard input, which ends it.
"""

from __future__ import annotations

import argparse
import errno
import os
import resource
import select
import socket
import struct
import sys
from urllib.parse import urlsplit

Address = tuple[str, int]

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with which `close` resets a connection."""


class Keyless:
    """Connections that never finish a handshake, and their replacements."""

    def __init__(self, ends: list[Address], connections: int, churns: bool) -> None:
        self._epoll = select.epoll()
        self._open: dict[int, tuple[socket.socket, Address]] = {}
        self._due = ends * connections
        self._churns = churns
        self.opened = 0

    def turn(self) -> None:
        """Open what is due, then take in what has become of the others."""
        due, self._due = self._due, []
        for end in due:
            self._dial(end)
        for descriptor, event in self._epoll.poll(0.1):
            connection, end = self._open[descriptor]
            stands = event & select.EPOLLOUT and not event & (select.EPOLLERR | select.EPOLLHUP)
            self.opened += bool(stands)
            if stands and not self._churns:
                self._epoll.modify(descriptor, select.EPOLLRDHUP)
                continue
            self._epoll.unregister(descriptor)
            del self._open[descriptor]
            connection.close()
            self._due.append(end)

    def _dial(self, end: Address) -> None:
        try:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            connection.setblocking(False)
            if self._churns:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            began = connection.connect_ex(end)
        except OSError:  # out of descriptors or memory: later
            self._due.append(end)
            return
        if began not in (0, errno.EINPROGRESS):  # out of ports
            connection.close()
            self._due.append(end)
            return
        self._open[connection.fileno()] = (connection, end)
        self._epoll.register(connection, select.EPOLLOUT | select.EPOLLRDHUP)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.nodes.keyless",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("addresses", nargs="+")
    parser.add_argument("--connections", type=int, default=256, help="to each (%(default)s)")
    parser.add_argument("--churn", action="store_true", help="close them by itself, and at once")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    parts = [urlsplit(one) for one in options.addresses]
    ends = [(one.hostname or "", one.port or 0) for one in parts]
    flood, is_under_way = Keyless(ends, options.connections, options.churn), False
    while not select.select([0], [], [], 0)[0]:
        flood.turn()
        if not is_under_way and flood.opened >= len(ends) * options.connections:
            is_under_way = True
            sys.stdout.write(f"{flood.opened}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{flood.opened}\n")
    sys.stdout.flush()
    os._exit(0)  # closing thousands of connections one by one takes long


if __name__ == "__main__":
    sys.exit(main())
