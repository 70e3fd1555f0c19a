"""Take the listening sockets that the process which started this one has opened for it.

The protocol is that of sd_listen_fds(3), which systemd and others speak: `LISTEN_FDS` counts the
sockets, which are the file descriptors from 3 on, and `LISTEN_PID` names the process that they are
for. The starter keeps the sockets, too. So their connections wait while no process accepts them,
and the process may end and be started again without refusing any.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from nodes.protocol.errors import NodeError

FIRST = 3
PORTS = 2
"""The control port and the data port."""


@dataclass(frozen=True, slots=True)
class GivenSockets:
    """The file descriptors of an agent's control port and data port."""

    control: int
    data: int


def given_sockets(environment: Mapping[str, str] = os.environ) -> GivenSockets | None:
    """Return the sockets that were given to this process; None if there are none.

    Processes that this one starts do not inherit them. Raises `NodeError` if they are not two.
    """
    count = environment.get("LISTEN_FDS", "")
    if not count or environment.get("LISTEN_PID") != str(os.getpid()):
        return None
    if count != str(PORTS):
        raise NodeError(
            f"this agent was given {count} listening sockets; it takes two, for its control port "
            "and its data port"
        )
    given = GivenSockets(FIRST, FIRST + 1)
    try:
        for descriptor in (given.control, given.data):
            os.set_inheritable(descriptor, False)
    except OSError as error:
        raise NodeError(
            f"the listening socket {descriptor} that this agent was given cannot be used: "
            f"{error.strerror}"
        ) from error
    return given
