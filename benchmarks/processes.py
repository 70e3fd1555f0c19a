"""Reads processes from `/proc`: children, memory, CPU time and context switches (proc(5))."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")


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


def _sleeps(task: Path) -> int:
    for line in (task / "status").read_text("utf-8", "replace").splitlines():
        if line.startswith("voluntary_ctxt_switches:"):
            return int(line.split()[1])
    return 0
