"""Reads processes from `/proc`: children, memory and CPU time (proc(5))."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")


def computed_s(pid: int) -> float:
    """CPU seconds of its threads that run, to the nanosecond."""
    found_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile
            found_ns += int((task / "schedstat").read_text("ascii").split()[0])
    return found_ns / 1e9


def cpu_s(pid: int) -> float:
    """CPU seconds of all its threads, ended ones included (to the clock tick)."""
    return times_s(pid)[0]


def times_s(pid: int) -> tuple[float, float]:
    """CPU seconds of a process, and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    own, system, ended, ended_system = (int(field) / _TICKS_S for field in fields[11:15])
    return own + system, ended + ended_system


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages included; 0 if it has ended."""
    return sizes(pid).get("VmRSS", 0)


def pss_bytes(pid: int) -> int:
    """Resident memory, of pages that several processes share only this one's part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def sizes(pid: int) -> Mapping[str, int]:
    """The sizes in `/proc/PID/status` in bytes, such as `VmHWM`; empty if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":") for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) * 1024 for name, value in pairs}


def children(pid: int) -> list[int]:
    """The children of a process; empty if it has ended."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text("ascii").split())
    return found


def below(pid: int) -> Iterator[int]:
    """All descendants of a process."""
    for child in children(pid):
        yield child
        yield from below(child)


def command_of(pid: int) -> list[str]:
    """The words of a process's command line; empty if it has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    return []


def agents_of(pid: int) -> list[int]:
    """The agents that a launcher or a server has started."""
    return [child for child in children(pid) if "nodes.cli" in command_of(child)]
