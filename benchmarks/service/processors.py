"""The processor time that a change of a service takes, by who takes it."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds of the commands, of the server itself, and of the processes that it starts."""

    commands_s: float
    server_s: float
    children_s: float

    def __sub__(self, other: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(
            self.commands_s - other.commands_s,
            self.server_s - other.server_s,
            self.children_s - other.children_s,
        )


def processor_time(server: int) -> ProcessorTime:
    """Return what was taken so far; commands are the processes that this one has waited for."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    own_s, ended_s = _times(server)
    tasks = Path(f"/proc/{server}/task").glob("*/children")
    children = [int(child) for file in tasks for child in file.read_text().split()]
    running_s = sum(sum(_times(child)) for child in children)
    return ProcessorTime(waited.ru_utime + waited.ru_stime, own_s, ended_s + running_s)


def _times(process: int) -> tuple[float, float]:
    """Seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]
    return ticks[0] + ticks[1], ticks[2] + ticks[3]
