"""Report a process's state to systemd.

systemd's watchdog ends a process whose code can no longer run, because its loop no longer sends
`WATCHDOG=1`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

READY, ALIVE = "READY=1", "WATCHDOG=1"


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
    def is_present(self) -> bool:
        """Whether the process is a service of systemd."""
        return bool(self._address)

    @property
    def limit_s(self) -> float | None:
        """How long the process may be silent; None if the unit has no `WatchdogSec`."""
        return None if self._period_s is None else 2 * self._period_s

    @property
    def deadline_s(self) -> float | None:
        """When `alive` is due, on the monotonic clock; None if the unit has no `WatchdogSec`."""
        return None if self._period_s is None else self._due_s

    def ready(self) -> None:
        """Report that the process is ready: its ports are open."""
        self._notify(READY)

    def stopping(self) -> None:
        """Report that the process ends."""
        self._notify("STOPPING=1")

    def status(self, text: str) -> None:
        """Report a line that `systemctl status` shows."""
        self._notify("STATUS=" + text.replace("\n", " "))

    def alive(self, now_s: float) -> None:
        """Report that the process's loop runs, if that is due."""
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
