"""Runs other programs on the laboratory's boards, within the bounds of our agents.

On a CPU board the quota holds for the whole program, on an accelerator board for its main thread,
which computes; its other threads are outside, as an agent's are. Where boards cannot be emulated
they are plain processes on loopback.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.lab import Lab, plans
from benchmarks.lab.layout import INTERFACE
from benchmarks.lab.readings import processes
from benchmarks.lab.shell import LabError, perform

ROOT = Path(__file__).parents[2]
PORT = 6600
UNBOUNDED_CORES = 4.0
"""While programs start; the quota holds once they are ready."""

END_S = 10.0


@dataclass
class Program:
    """A process that we started, and its lines."""

    name: str
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def tell(self, line: str) -> None:
        """One line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Its next line; raises `LabError` if it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise LabError(f"{self.name} has ended with {self.process.wait()}")
        return line.strip()


class Boards:
    """A laboratory that is up, seen as a place for programs."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self.names = tuple(lab.layout.places)
        self.agents = {
            name: min(processes(lab.layout, place)) for name, place in lab.layout.places.items()
        }
        self._ports = {name: _free_port() for name in self.names}

    @property
    def emulated(self) -> bool:
        """Whether they are more than processes."""
        return self._lab.layout.isolated

    @property
    def host(self) -> str:
        """The address of this machine that boards reach."""
        return self._lab.layout.host_address.partition("/")[0] if self.emulated else "127.0.0.1"

    def address(self, name: str) -> str:
        """Where a program on this board can listen."""
        place = self._lab.place(name)
        return f"tcp://{place.host}:{PORT if self.emulated else self._ports[name]}"

    def host_address(self) -> str:
        """Where this machine can listen."""
        return f"tcp://{self.host}:{_free_port(self.host)}"

    def interface(self, name: str | None) -> str:
        """The network interface of a board, or of this machine."""
        if not self.emulated:
            return "lo"
        return self._lab.layout.host_interface if name is None else INTERFACE

    @contextlib.contextmanager
    def programs(
        self,
        commands: Mapping[str, tuple[str, ...]],
        host: Mapping[str, tuple[str, ...]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[dict[str, Program]]:
        """Start a program on each board named and, in `host`, some on this machine.

        All must say `ready`; quotas hold from then on. They end with the context.
        """
        started: dict[str, Program] = {}
        with contextlib.ExitStack() as stack:
            for name in commands:
                self._starve(name, UNBOUNDED_CORES)
            for name, argv in {**(host or {}), **commands}.items():
                board = name if name in commands else None
                extra = {**(environment or {}), "GLOO_SOCKET_IFNAME": self.interface(board)}
                process = self._start(board, argv, {**os.environ, **extra})
                stack.callback(_end, process)
                started[name] = Program(name, process)
            for program in started.values():
                if program.hear() != "ready":
                    raise LabError(f"{program.name} did not get ready")
            for name in commands:
                self._settle(name, started[name].pid)
            yield started

    def _start(
        self, board: str | None, argv: tuple[str, ...], environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        options: dict[str, Any] = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "cwd": ROOT,
            "env": environment,
        }
        if board is not None and self.emulated:
            return self._lab.popen(board, argv, **options)
        return subprocess.Popen(argv, text=True, **options)

    def _starve(self, name: str, cores: float) -> None:
        if self.emulated:
            self._lab.starve(name, cores)

    def _settle(self, name: str, pid: int) -> None:
        if self.emulated:
            perform(plans.settle(self._lab.layout, self._lab.place(name), pid))


def _end(process: subprocess.Popen[str]) -> None:
    """It has no state worth saving."""
    process.send_signal(signal.SIGKILL)
    process.wait(END_S)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
