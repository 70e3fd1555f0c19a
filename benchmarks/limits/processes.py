"""Reads a process's memory, and the CPU time and context switches of its threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """What threads of one name have used so far: CPU seconds, and how often they went to sleep
    (voluntary context switches)."""

    cpu_s: float
    sleeps: int


def threads(pid: int) -> Mapping[str, Ran]:
    """By name; ZeroMQ's I/O thread, the executor, and the main thread, which is called `python`."""
    found: dict[str, Ran] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            name = (task / "comm").read_text("utf-8").strip()
            cpu_ns = int((task / "schedstat").read_text("ascii").split()[0])
            known = found.get(name, Ran(0.0, 0))
            found[name] = Ran(known.cpu_s + cpu_ns / 1e9, known.sleeps + _sleeps(task))
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds of all its threads, ended ones included (to the clock tick)."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages included."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def pss_bytes(pid: int) -> int:
    """Resident memory, of pages that several processes share only this one's part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _sleeps(task: Path) -> int:
    for line in (task / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0
