"""Commands that serve, as processes: `launch serve` on the digits network or another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.processes import agents_of
from benchmarks.programs import LAUNCH

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
ON_THREE = Path(__file__).parent / "digits.yaml"
WAIT_S = 60.0


class Server:
    """A command that serves, as a process; its addresses are without a scheme.

    What it prints to standard error goes to `log`, or is kept for `process.communicate`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        log: IO[Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [*LAUNCH, *arguments],
            stdout=subprocess.PIPE,
            stderr=log or subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.lines: list[str] = []
        """What it has printed so far."""
        addresses: dict[str, str] = {}
        while not addresses:
            line = self.read_until("://")
            addresses = dict(re.findall(r"(http|grpc)s?://([\[\]\w.:]+)", line))
        self.http, self.grpc = addresses["http"], addresses["grpc"]

    def read_until(self, text: str) -> str:
        """Read its output to the line that has `text`; return that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError("".join(self.lines) + self.complaints())

    def complaints(self) -> str:
        """What it has printed to standard error, once it has ended."""
        return str(self.process.communicate(timeout=WAIT_S)[1])

    def agents(self) -> list[int]:
        """The process ids of its agents."""
        return agents_of(self.process.pid)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code, once no agent is left."""
        agents = self.agents()
        os.kill(self.process.pid, number)
        code = self.end_of_output()
        assert not [agent for agent in agents if Path(f"/proc/{agent}").exists()]
        return code

    def end_of_output(self) -> int:
        """Read its output to the end; return its exit code."""
        output = self.process.communicate(timeout=WAIT_S)[0]
        self.lines += (output or "").splitlines(keepends=True)
        return self.process.returncode


class Serving(Server):
    """`launch serve` with these options."""

    def __init__(
        self, *options: str, target: Path = ON_THREE, log: IO[bytes] | None = None
    ) -> None:
        ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        super().__init__(["serve", str(target), *ports, *options], log)
