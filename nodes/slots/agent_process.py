"""Starts the process of a slot's agent, and hears from it.

The agent is an ordinary `node-agent`. It is given its two listening sockets as sd_listen_fds(3)
says, and a third one to which it reports that it is ready and alive in the words of sd_notify(3).
It ends at the end of its standard input, a pipe that the kernel closes when the parent has ended,
however that happened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
from collections.abc import Mapping
from typing import NoReturn

from nodes.host.listening import FIRST, MOST
from nodes.slots.ports import SlotPorts

STDIN = 0

ABOVE = 16
"""Descriptors are first moved above those that the agent expects."""

MOST_REPORTS = 16
"""Reports that are taken at a time."""

_LONGEST = 256
_CANNOT_RUN = 127


class AgentProcess:
    """The process of a slot's agent."""

    def __init__(
        self, command: list[str], ports: SlotPorts, environment: Mapping[str, str]
    ) -> None:
        """Start it; raises OSError if that is impossible."""
        self.reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.reports, theirs):
            end.setblocking(False)
        closes, self._alive = os.pipe()
        try:
            self.pid = os.fork()
            if self.pid == 0:
                given = (closes, ports.control.fileno(), ports.data.fileno(), theirs.fileno())
                _become_agent(command, given, environment)
        except OSError:
            self._close()
            raise
        finally:
            os.close(closes)
            theirs.close()

    def _close(self) -> None:
        os.close(self._alive)
        self.reports.close()

    def take_reports(self) -> list[str]:
        """Return what it has reported since the last call."""
        found: list[str] = []
        with contextlib.suppress(OSError):
            while len(found) < MOST_REPORTS and (text := self.reports.recv(_LONGEST)):
                found.append(text.decode("ascii", "replace"))
        return found

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
        self._close()
        return os.waitstatus_to_exitcode(status)


def _become_agent(
    command: list[str], given: tuple[int, ...], environment: Mapping[str, str]
) -> NoReturn:
    """Replace this process, which was just forked, by the agent.

    The first of the descriptors in `given` becomes its standard input.
    """
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, ABOVE) for each in given]
        for source, target in zip(moved, (STDIN, *range(FIRST, FIRST + MOST)), strict=True):
            os.dup2(source, target, inheritable=True)
        own = str(os.getpid())
        os.execve(  # noqa: S606 - the user's own command
            command[0],
            command,
            {**environment, "LISTEN_FDS": str(MOST), "LISTEN_PID": own, "WATCHDOG_PID": own},
        )
    finally:
        os._exit(_CANNOT_RUN)
