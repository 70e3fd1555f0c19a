"""What the service manager (systemd) is told: that the agent is ready, and that it is alive.

The protocol of sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names. Where the unit has
a `WatchdogSec`, systemd ends an agent that has not said `WATCHDOG=1` for so long. It is the agent's
loop that says so. An engine that hangs while it holds the interpreter stops the loop, too, and no
code of the agent can run any more: then this is what ends it.

The end of a process one of whose threads is in an engine's call that does not return.

Nothing can end such a thread but the end of its process, or another program in its place: execve(2)
ends all other threads, and the process keeps its PID, its standard files and its parent. What was
closed or marked close-on-exec is gone, and with it whatever the engine held.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

_MOST_FILES = 1 << 20


def restart_in_place(more: Sequence[str] = ()) -> NoReturn:
    """Run this process's own command line again in its place, with `more` arguments behind it.

    Raises OSError if the interpreter cannot be started again.
    """
    _flush()
    os.closerange(3, _MOST_FILES)
    command = [sys.executable, *sys.orig_argv[1:], *more]
    os.execv(command[0], command)  # noqa: S606 - the command line that started us


def exit_at_once(code: int) -> NoReturn:
    """End the process without waiting for its threads or unloading libraries that they are in."""
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


class ServiceManager:
    """Nobody, unless the environment names one."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._period_s: float | None = None
        self._due_s = 0.0
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        if self._address and microseconds.isdecimal() and is_for_us:
            self._period_s = int(microseconds) / 2e6  # as sd_watchdog_enabled(3) recommends

    @property
    def deadline_s(self) -> float | None:
        """When `alive` is due on the monotonic clock; None if nobody wants to know."""
        return None if self._period_s is None else self._due_s

    def ready(self) -> None:
        """The ports are open."""
        self._tell("READY=1")

    def alive(self, now_s: float) -> None:
        """The loop turns; says so if it is time to."""
        if self._period_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._period_s
            self._tell("WATCHDOG=1")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),  # it is restarting, say: it asks for nothing then
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as teller,
        ):
            teller.sendto(state.encode(), self._address)
