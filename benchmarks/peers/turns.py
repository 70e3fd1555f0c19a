"""Computes the figures of a turn, the same for all programs: rates, latencies, CPU time, memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.processes import below, cpu_s, rss_bytes, sizes
from nodes.host.usage import program_bytes


@dataclass(frozen=True)
class Memory:
    """Of one process, in bytes, without the pages of programs and libraries: the most that was
    resident since it began, and what is resident now that no file backs."""

    peak_bytes: int
    anonymous_bytes: int


@dataclass(frozen=True)
class Turn:
    """One turn. Frames per second; seconds; mappings by board.

    `latency_s` is the median while the pipeline is full, as many frames under way as the runtime
    takes in; `first_s` that of the first frame, which meets empty boards. `cpu_s` are CPU seconds
    per frame of a board's process, `host_cpu_s` of those that feed frames in and take results.
    """

    rate: float
    latency_s: float
    first_s: float
    cpu_s: Mapping[str, float]
    host_cpu_s: float
    memory: Mapping[str, Memory]
    difference: float


class Peer(Protocol):
    """One of those compared, ready to run."""

    name: str

    def run(self, frames: int, skipped: int) -> Turn:
        """Stream so many frames; the first `skipped` results, while it fills, do not count."""
        ...


class Counting:
    """CPU time of processes from the moment when the pipeline is full."""

    def __init__(self, boards: Mapping[str, int], host: Iterable[int]) -> None:
        """`boards` maps boards to process ids, `host` has those of the feeding side."""
        self._boards, self._host = boards, tuple(host)
        self._before = self._after = self._look()
        self._memory: dict[str, Memory] = {}

    def full(self) -> None:
        """Now the pipeline is full."""
        self._before = self._look()

    def done(self) -> None:
        """All results are in, and everything is still there to be looked at."""
        self._after = self._look()
        self._memory = {name: memory_of(pid) for name, pid in self._boards.items()}

    def turn(
        self, sent_s: Sequence[float], received_s: Sequence[float], skipped: int, difference: float
    ) -> Turn:
        """What it was, by the times at which each frame went in and its result came out."""
        counted = len(received_s) - skipped - 1
        before, after = self._before[0], self._after[0]
        return Turn(
            rate=counted / (received_s[-1] - received_s[skipped]),
            latency_s=statistics.median(
                came - went
                for went, came in zip(sent_s[skipped:], received_s[skipped:], strict=True)
            ),
            first_s=received_s[0] - sent_s[0],
            cpu_s={name: (after[name] - before[name]) / counted for name in after},
            host_cpu_s=(self._after[1] - self._before[1]) / counted,
            memory=self._memory,
            difference=difference,
        )

    def _look(self) -> tuple[dict[str, float], float]:
        boards = {name: cpu_s(pid) for name, pid in self._boards.items()}
        return boards, sum(map(cpu_s, self._host))


def memory_of(pid: int) -> Memory:
    """Return what a process holds, without the pages of programs and libraries
    (`nodes.host.usage`)."""
    found = sizes(pid)
    peak_bytes = max(found["VmHWM"] - program_bytes(pid), found["RssAnon"])
    return Memory(peak_bytes, found["RssAnon"])


def family_bytes(pid: int) -> int:
    """What a process and all that descend from it have resident, added up; pages that two of them
    share count twice. What ends meanwhile counts as nothing."""
    return sum(map(rss_bytes, (pid, *below(pid))))
