"""Report the agent's state to systemd, and restart or end a process whose engine hangs.

A thread in a call that never returns ends only with its process, or when execve(2) replaces the
program: then all other threads end, and the process keeps its PID, its standard files and its
parent. All other descriptors are closed, and with them what the engine held is released.

If the engine holds the interpreter while it hangs, no code of the agent can run any more. Then
systemd's watchdog ends the process, because the agent's loop no longer sends `WATCHDOG=1`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

READY, ALIVE = "READY=1", "WATCHDOG=1"
"""What systemd is notified of."""

_FIRST_FILE, _MOST_FILES = 3, 1 << 20


def restart_in_place(more: Sequence[str] = (), kept: int = 0) -> NoReturn:
    """Replace this process by a new run of its own command line, with `more` arguments appended.

    The first `kept` file descriptors behind the standard ones stay open. Raises OSError if the
    interpreter cannot be started again.
    """
    flush()
    for descriptor in range(_FIRST_FILE, _FIRST_FILE + kept):
        os.set_inheritable(descriptor, True)
    os.closerange(_FIRST_FILE + kept, _MOST_FILES)
    command = [sys.executable, *sys.orig_argv[1:], *more]
    os.execv(command[0], command)  # noqa: S606 - the command line that started us


def exit_at_once(code: int) -> NoReturn:
    """End the process without waiting for its threads or unloading the libraries that they use."""
    flush()
    os._exit(code)


def flush() -> None:
    """Write out what waits in standard output and standard error."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


class ServiceManager:
    """Notifies systemd as sd_notify(3) does, by datagrams to the socket in `NOTIFY_SOCKET`.

    With `reports`, a connected socket, that one is notified instead. Without either, it does
    nothing.
    """

    def __init__(
        self, environment: Mapping[str, str] = os.environ, reports: int | None = None
    ) -> None:
        self._reports = reports
        path = environment.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._period_s: float | None = None
        self._due_s = 0.0
        microseconds = environment.get("WATCHDOG_USEC", "")
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        is_heard = bool(self._address) or reports is not None
        if is_heard and microseconds.isdecimal() and is_for_us:
            self._period_s = int(microseconds) / 2e6  # as sd_watchdog_enabled(3) recommends

    @property
    def limit_s(self) -> float | None:
        """How long the agent may be silent; None if the unit has no `WatchdogSec`."""
        return None if self._period_s is None else 2 * self._period_s

    @property
    def deadline_s(self) -> float | None:
        """When `alive` is due, on the monotonic clock; None if the unit has no `WatchdogSec`."""
        return None if self._period_s is None else self._due_s

    def ready(self) -> None:
        """Report that the agent is ready: its ports are open."""
        self._notify(READY)

    def alive(self, now_s: float) -> None:
        """Report that the agent's loop runs, if that is due."""
        if self._period_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._period_s
            self._notify(ALIVE)

    def _notify(self, state: str) -> None:
        if self._reports is not None:
            with contextlib.suppress(OSError):  # the starter has ended, or is stopped
                os.write(self._reports, state.encode())
            return
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),  # systemd is restarting, for example
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notifier,
        ):
            notifier.sendto(state.encode(), self._address)
