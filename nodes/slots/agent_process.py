"""Starts the process of a slot's agent, and hears from it.

The agent is an ordinary `node-agent`. It is given its two listening sockets as sd_listen_fds(3)
says, reports that it is ready and alive as sd_notify(3) says, and ends at the end of its standard
input, a pipe that the kernel closes when the parent has ended, however that happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
from collections.abc import Mapping
from typing import NoReturn

from nodes.host.given_sockets import FIRST
from nodes.slots.ports import SlotPorts

STDIN = 0

ABOVE = 16
"""Descriptors are first moved above those that the agent expects."""

_CREDENTIALS = struct.Struct("iII")
_LONGEST = 256
_CANNOT_RUN = 127


class Reports:
    """The socket at which agents report. Only what the kernel attests to come from one counts."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind("")  # the kernel chooses an abstract address
        name = self.socket.getsockname()
        self.address = "@" + name[1:].decode("ascii")

    def take(self) -> list[tuple[int, str]]:
        """Return the sender's PID and the text of each report that has come."""
        found: list[tuple[int, str]] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, extra, _, _ = self.socket.recvmsg(_LONGEST, socket.CMSG_SPACE(64))
                for level, kind, value in extra:
                    if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                        pid, _, _ = _CREDENTIALS.unpack_from(value)
                        found.append((pid, data.decode("utf-8", "replace")))
        return found


class AgentProcess:
    """The process of a slot's agent."""

    def __init__(
        self, command: list[str], ports: SlotPorts, environment: Mapping[str, str]
    ) -> None:
        """Start it; raises OSError if that is impossible."""
        end, self._alive = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _become_agent(command, ports, end, environment)
        except OSError:
            os.close(self._alive)
            raise
        finally:
            os.close(end)

    def signal(self, number: int) -> None:
        """Send it a signal; it has not been waited for, so the PID is still its own."""
        os.kill(self.pid, number)

    def exit_code(self) -> int | None:
        """Return its exit code, minus the signal that ended it, or None while it runs.

        Do not call this again once it has returned a number.
        """
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        os.close(self._alive)
        return os.waitstatus_to_exitcode(status)


def _become_agent(
    command: list[str], ports: SlotPorts, end: int, environment: Mapping[str, str]
) -> NoReturn:
    """Replace this process, which was just forked, by the agent."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        given = (end, ports.control.fileno(), ports.data.fileno())
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, ABOVE) for each in given]
        for source, target in zip(moved, (STDIN, FIRST, FIRST + 1), strict=True):
            os.dup2(source, target, inheritable=True)
        own = {**environment, "LISTEN_PID": str(os.getpid()), "WATCHDOG_PID": str(os.getpid())}
        os.execve(command[0], command, own)  # noqa: S606 - the user's own command
    finally:
        os._exit(_CANNOT_RUN)
