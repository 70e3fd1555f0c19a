"""Computes the figures of a turn, the same for all programs: rates, latencies, CPU time, memory."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.processes import cpu_s, sizes
from nodes.host.usage import program_bytes


@dataclass(frozen=True)
class Turn:
    """One turn. `latency_s` is the median while the pipeline is full, as many frames under way as
    the runtime takes in. `cpu_s` are the CPU seconds per frame of all boards' processes. Memory in
    bytes of the process that needs most, without the pages of programs and libraries: the most that
    was resident since it began, and what is resident now that no file backs."""

    rate: float
    latency_s: float
    cpu_s: float
    peak_bytes: int
    anonymous_bytes: int
    difference: float


class Peer(Protocol):
    """One of those compared, ready to run."""

    name: str

    def run(self, frames: int, skipped: int) -> Turn:
        """Stream so many frames; the first `skipped` results, while it fills, do not count."""
        ...


class Counting:
    """CPU time of boards' processes from the moment when the pipeline is full."""

    def __init__(self, boards: Mapping[str, int]) -> None:
        """`boards` maps boards to process ids."""
        self._pids = tuple(boards.values())
        self._before_s = self._cpu_s = 0.0
        self._peak_bytes = self._anonymous_bytes = 0

    def full(self) -> None:
        """Now the pipeline is full."""
        self._before_s = sum(map(cpu_s, self._pids))

    def done(self) -> None:
        """All results are in, and everything is still there to be looked at."""
        self._cpu_s = sum(map(cpu_s, self._pids)) - self._before_s
        held = [sizes(pid) for pid in self._pids]
        self._anonymous_bytes = max(one["RssAnon"] for one in held)
        self._peak_bytes = max(
            max(one["VmHWM"] - program_bytes(pid), one["RssAnon"])
            for pid, one in zip(self._pids, held, strict=True)
        )

    def turn(
        self, sent_s: Sequence[float], received_s: Sequence[float], skipped: int, difference: float
    ) -> Turn:
        """What it was, by the times at which each frame went in and its result came out."""
        counted = len(received_s) - skipped - 1
        times = zip(sent_s[skipped:], received_s[skipped:], strict=True)
        return Turn(
            rate=counted / (received_s[-1] - received_s[skipped]),
            latency_s=statistics.median(came - went for went, came in times),
            cpu_s=self._cpu_s / counted,
            peak_bytes=self._peak_bytes,
            anonymous_bytes=self._anonymous_bytes,
            difference=difference,
        )
