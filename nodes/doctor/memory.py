"""Checks memory: what the machine and its control groups have left, kills, and swap."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.doctor.findings import Finding, Severity
from nodes.host.control_groups import group_folders, memory_limit
from nodes.host.kernel_files import table_of, text_of

LEAST_BYTES = 128_000_000
"""The memory that an agent needs in addition to what it has: an engine (34 MB with ONNX Runtime),
and a small network that is prepared in another process (46 MB when idle) at the same time.
"""

TIGHT_BYTES = 400_000_000
"""The peak memory of preparing a network of 100 MB of weights, with what stays of it."""


@dataclass(frozen=True, slots=True)
class GroupMemory:
    """A control group with a limit of memory.

    `used_bytes` counts what the kernel cannot drop. `oom_kills` are the processes that it has
    killed there for lack of memory.
    """

    folder: Path
    limit_bytes: int
    used_bytes: int
    oom_kills: int

    @property
    def free_bytes(self) -> int:
        """The bytes that its processes can still allocate."""
        return max(0, self.limit_bytes - self.used_bytes)


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """A machine's memory and swap in bytes, and the control groups that bound this process.

    `swapped_to` names the devices of swap that is on a disk or card, not compressed in memory.
    """

    total_bytes: int
    available_bytes: int
    swap_used_bytes: int
    swapped_to: tuple[str, ...]
    groups: tuple[GroupMemory, ...]


def read_memory(proc: Path = Path("/proc")) -> MemoryReading:
    """Read the machine's memory and this process's control groups."""
    table = table_of(proc / "meminfo")
    swaps = [line.split() for line in text_of(proc / "swaps").splitlines()[1:]]
    on_disk = [words for words in swaps if len(words) > 3 and "zram" not in words[0]]
    return MemoryReading(
        table.get("MemTotal:", 0) * 1024,
        table.get("MemAvailable:", 0) * 1024,
        sum(int(words[3]) * 1024 for words in on_disk if words[3].isdigit()),
        tuple(words[0] for words in on_disk),
        _groups(proc),
    )


def _groups(proc: Path) -> tuple[GroupMemory, ...]:
    folders: list[Path] | None = None
    with contextlib.suppress(OSError, ValueError):
        folders = group_folders("memory", proc / "self")
    limits = [(folder, memory_limit(folder)) for folder in folders or ()]
    return tuple(
        GroupMemory(folder, *limit, _kills(folder)) for folder, limit in limits if limit is not None
    )


def _kills(folder: Path) -> int:
    events = table_of(folder / "memory.events") or table_of(folder / "memory.oom_control")
    return events.get("oom_kill", 0)


def judge_memory(reading: MemoryReading) -> Iterator[Finding]:
    """Yield what is wrong with the memory for an agent that does not run yet."""
    for group in reading.groups:
        yield from _judge_group(group)
    if reading.total_bytes > 0 and reading.available_bytes < TIGHT_BYTES:
        severity = Severity.ERROR if reading.available_bytes < LEAST_BYTES else Severity.WARNING
        yield Finding(
            severity,
            "this machine's memory",
            f"{_mb(reading.available_bytes)} of {_mb(reading.total_bytes)} are available; an "
            f"agent needs {_mb(LEAST_BYTES)} to begin with and {_mb(TIGHT_BYTES)} to prepare "
            "a network of 100 MB. End other programs (the command shows the largest).",
            "ps -eo rss,pid,args --sort -rss | head -n 10",
        )
    if reading.swap_used_bytes > reading.total_bytes // 10:
        yield Finding(
            Severity.WARNING,
            ", ".join(reading.swapped_to),
            f"{_mb(reading.swap_used_bytes)} are swapped out to a disk or card, which slows "
            "down every program that reads them. End other programs, then swap back.",
            f"sudo swapoff {' '.join(map(shlex.quote, reading.swapped_to))}",
        )


def _judge_group(group: GroupMemory) -> Iterator[Finding]:
    if group.free_bytes < TIGHT_BYTES:
        severity = Severity.ERROR if group.free_bytes < LEAST_BYTES else Severity.WARNING
        yield Finding(
            severity,
            str(group.folder),
            f"Its control group allows {_mb(group.limit_bytes)}, of which "
            f"{_mb(group.free_bytes)} are left; an agent needs {_mb(LEAST_BYTES)} to begin "
            f"with and {_mb(TIGHT_BYTES)} to prepare a network of 100 MB.",
            _raise_limit(group),
        )
    if group.oom_kills:
        yield Finding(
            Severity.WARNING,
            str(group.folder),
            f"The kernel has killed {group.oom_kills} processes of this control group for "
            "want of memory since the group was created. If the agent was one of them, its "
            "nodes need a lower `memory` in cluster.yaml or the group a higher limit.",
            "journalctl -k | grep -i 'killed process' | tail -n 5",
        )


def _raise_limit(group: GroupMemory) -> str:
    """Return the command that gives a control group room for an agent."""
    wanted = group.limit_bytes - group.free_bytes + 2 * TIGHT_BYTES
    if group.folder.name.endswith((".service", ".scope", ".slice")):
        return f"sudo systemctl set-property {group.folder.name} MemoryMax={wanted // 1_000_000}M"
    name = "memory.max"
    if not (group.folder / name).exists():
        name = "memory.limit_in_bytes"
    return f"echo {wanted} | sudo tee {shlex.quote(str(group.folder / name))}"


def _mb(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def check_memory(_: object = None) -> Iterable[Finding]:
    """Check this machine's memory and this process's control groups."""
    return judge_memory(read_memory())
