"""Processes of ours that follow orders: a line of their standard input, answered with a line."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from launcher.errors import RunFailedError

LAUNCH = (sys.executable, "-m", "launcher.commands.launch")
ENDING_S = 30.0
"""How long a command may take to end once it is interrupted."""


class Program:
    """Gives orders to a process, whose input and output are pipes of text."""

    def __init__(self, process: subprocess.Popen[str], name: str = "a program") -> None:
        self.process = process
        self.name = name

    @classmethod
    def python(cls, *argv: str) -> Program:
        """Start a separate Python process with these arguments."""
        pipe = subprocess.PIPE
        command = [sys.executable, *argv]
        return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def tell(self, line: str = "") -> None:
        """One line to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Its next line; raises `RunFailedError` if it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RunFailedError(f"{self.name} has ended with {self.process.wait()}")
        return line.strip()

    def ready(self) -> None:
        """Wait for the line with which it begins; raises `RunFailedError` if it is another."""
        if (line := self.hear()) != "ready":
            raise RunFailedError(f"{self.name} did not get ready: {line}")

    def close(self) -> None:
        """No more orders; wait until it has ended."""
        self.process.communicate()

    def kill(self) -> None:
        """It has no state worth saving."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


@dataclass(frozen=True)
class Ended:
    """What became of a command: its exit code (None: it took too long) and what it printed."""

    code: int | None
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last line of its errors, or its exit code."""
        return (self.errors.strip().splitlines() or [f"exit code {self.code}"])[-1]


def finished(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None
) -> Ended:
    """Run a command; after `limit_s` seconds interrupt it, as Ctrl-C does, and then kill it."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    code: int | None = None
    try:
        output, errors = process.communicate(timeout=limit_s)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            output, errors = process.communicate(timeout=ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return Ended(code, output, errors)


def free_port(host: str = "127.0.0.1") -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
