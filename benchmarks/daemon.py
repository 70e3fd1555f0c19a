"""Starts a program again whenever it ends, and ends it when it falls silent, as systemd does.

systemd also ends what a service has left behind, because it knows the service's control group.
Nothing does so here: a process whose daemon was killed has to end by itself.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodes.host.systemd import ALIVE, READY

STARTING = threading.Lock()
"""Held from the start of a process until its daemon knows it, and while others are reaped."""

END_S = 60.0
"""How long a daemon may take to end when it is asked to."""


class Daemon:
    """A program that is kept running; a thread of its own waits for it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        rest_s: Callable[[], float],
        watchdog_s: float | None = None,
    ) -> None:
        """`rest_s` returns how long it stays down after an end; `watchdog_s` how long it may be
        silent once it is ready. Its output goes to a file in `folder`."""
        self.name = name
        self.log = folder / f"{name}.log"
        self.pid: int | None = None
        self.starts = 0
        self.codes: list[int] = []
        """The exit codes so far."""
        self.ready_s: float | None = None
        """When it last said that it is ready; None while it does not run, or starts."""
        self._command = command
        self._rest_s = rest_s
        self._watchdog_s = watchdog_s
        self._is_over = threading.Event()
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.bind(str(folder / f"{name}.notify"))
        self._environment = {
            **os.environ,
            **environment,
            "NOTIFY_SOCKET": self._reports.getsockname(),
        }
        if watchdog_s is not None:
            self._environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))
        self._thread = threading.Thread(target=self._keep, name=name)
        self._thread.start()

    def _keep(self) -> None:
        with self.log.open("ab") as log:
            while not self._is_over.is_set():
                with STARTING:
                    process = subprocess.Popen(
                        self._command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=self._environment,
                        start_new_session=True,
                    )
                    self.pid = process.pid
                self.starts += 1
                self._watch(process)
                with STARTING:
                    self.codes.append(process.wait())
                    self.pid = self.ready_s = None
                self._is_over.wait(self._rest_s())

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Return once the process has ended; kill it if it is silent for too long."""
        ended = os.pidfd_open(process.pid)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        poll.register(self._reports.fileno(), select.POLLIN)
        heard_s = time.monotonic()
        try:
            while True:
                found = {descriptor for descriptor, _ in poll.poll(200)}
                if self._reports.fileno() in found:
                    said = self._reports.recv(4096).decode().splitlines()
                    if READY in said and self.ready_s is None:
                        self.ready_s = time.monotonic()
                    if READY in said or ALIVE in said:
                        heard_s = time.monotonic()
                elif ended in found:
                    return
                is_late = time.monotonic() - heard_s > (self._watchdog_s or float("inf"))
                if self.ready_s is not None and is_late:
                    process.kill()
                    heard_s = float("inf")
        finally:
            os.close(ended)

    def end(self) -> int:
        """Ask it to end, and return its exit code; kill it if it does not."""
        self._is_over.set()
        with contextlib.suppress(ProcessLookupError):
            if (pid := self.pid) is not None:
                os.kill(pid, signal.SIGTERM)
        self._thread.join(END_S)
        if self._thread.is_alive() and (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)
        self._thread.join()
        self._reports.close()
        return self.codes[-1]
