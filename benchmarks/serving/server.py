"""`launch serve` as a process of its own, on the digits network over three nodes or another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from benchmarks.processes import agents_of

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits"
ON_THREE = Path(__file__).parent / "digits.yaml"
WAIT_S = 60.0


class Serving:
    """A server that was started with these options; its addresses are without a scheme.

    What it prints to standard error goes to `log`, or is kept for `process.communicate`.
    """

    def __init__(
        self,
        *options: str,
        target: Path = ON_THREE,
        log: IO[bytes] | None = None,
    ) -> None:
        ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "launcher.commands.launch", "serve", str(target)),
                *ports,
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=log or subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        addresses = dict(re.findall(r"(http|grpc)s?://([\[\]\w.:]+)", line))
        if not addresses:
            raise AssertionError(self.process.communicate(timeout=WAIT_S)[1])
        self.http, self.grpc = addresses["http"], addresses["grpc"]

    def agents(self) -> list[int]:
        """The process ids of its agents."""
        return agents_of(self.process.pid)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code, once no agent is left."""
        agents = self.agents()
        os.kill(self.process.pid, number)
        self.process.communicate(timeout=WAIT_S)
        assert not [agent for agent in agents if Path(f"/proc/{agent}").exists()]
        return self.process.returncode
