"""Take the listening sockets that another process has opened for this one, or say why none opens.

Sockets are given as sd_listen_fds(3) says, which systemd and others speak: `LISTEN_FDS` counts the
sockets, which are the file descriptors from 3 on, and `LISTEN_PID` names the process that they are
for. The starter also keeps the listening sockets. So their connections wait while no process
accepts them, and the process may end and be started again without refusing any.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass

from nodes.protocol.errors import NodeError

FIRST = 3
LEAST, MOST = 2, 3
"""How many sockets an agent takes."""


@dataclass(frozen=True, slots=True)
class GivenSockets:
    """The file descriptors of an agent's control port and data port.

    To `reports`, if it was given, the agent reports as to `NOTIFY_SOCKET` (`nodes.host.systemd`).
    """

    control: int
    data: int
    reports: int | None = None

    @property
    def count(self) -> int:
        """How many sockets these are."""
        return LEAST if self.reports is None else MOST


def given_sockets(environment: Mapping[str, str] = os.environ) -> GivenSockets | None:
    """Return the sockets that were given to this process; None if there are none.

    Processes that this one starts do not inherit them. Raises `NodeError` if they are not two or
    three.
    """
    count = environment.get("LISTEN_FDS", "")
    if not count or environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    if count not in (str(LEAST), str(MOST)):
        raise NodeError(
            f"this agent was given {count} sockets; it takes two that listen, for its control port "
            "and its data port, and one for its reports"
        )
    found = range(FIRST, FIRST + int(count))
    try:
        for descriptor in found:
            os.set_inheritable(descriptor, False)
    except OSError as error:
        raise NodeError(
            f"the socket {descriptor} that this agent was given cannot be used: {error.strerror}"
        ) from error
    return GivenSockets(*found)


def bind_hint(number: int | None) -> str:
    """Return what a user can do about an address that cannot be listened on, by `errno`."""
    match number:
        case errno.EADDRINUSE:
            return "; is another agent running there?"
        case errno.ENODEV | errno.EADDRNOTAVAIL:
            return "; give an IP address of this machine, or 0.0.0.0 for all that it has"
        case _:
            return ""
