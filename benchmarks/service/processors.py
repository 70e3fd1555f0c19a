"""The processor time that a change of a service takes, by who takes it."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from benchmarks.processes import children, times_s


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
    own_s, ended_s = times_s(server)
    running_s = sum(sum(times_s(child)) for child in children(server))
    return ProcessorTime(waited.ru_utime + waited.ru_stime, own_s, ended_s + running_s)
