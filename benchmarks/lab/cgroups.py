"""Returns where to write a board's bounds and read its use, in control groups of either version.

A board is a group `csdflab-LAB/BOARD` that its agent joins before it starts Python, so that all
that it ever uses is counted. Below it lies a group `compute` for an accelerator board's executor
thread. Version 1 has one such tree per controller, version 2 one for all; there `compute` is a
*threaded* group, because memory cannot be counted by thread.

These functions are pure; `benchmarks.lab.readings` reads the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.lab.actions import Action, MakeFolder, Write
from benchmarks.lab.config import Board, DeviceConfig

PERIOD_US = 10_000
"""A short period: a board stands still for 8 of 10 ms, and not for 80 of 100."""

LEAST_QUOTA_US = 1_000
"""The kernel's own bound."""

SLICE_US = 4_000
"""The tick of a kernel with 250 Hz, at which it notices that a quota is used up. A board of less
than 0.4 core gets a longer period. With quotas of 1 ms, boards of 0.08 core made 0.74 instead of
0.84 of what replicas do on ten boards (ResNet50; 0.866 either way on four), because caches were
cold again after each interruption; with 8 ms 0.77, because boards then wait 92 ms for each other.
"""

LONGEST_PERIOD_US = 1_000_000
COMPUTE = "compute"
FIRST_SHARES, FIRST_WEIGHT = 1 << 18, 10_000
"""The largest share of the CPUs that there is, by version."""

NEEDED = ("cpu", "memory")
USED_V1 = ("cpu", "cpuacct", "memory")


@dataclass(frozen=True)
class Hierarchies:
    """Where control groups are mounted: controller → root. In version 2 all are the same root."""

    version: Literal[1, 2]
    roots: Mapping[str, Path] = field(default_factory=dict)

    @property
    def trees(self) -> tuple[Path, ...]:
        """Each root once (`cpu` and `cpuacct` often are one)."""
        return tuple(dict.fromkeys(self.roots.values()))


def hierarchies(mountinfo: str, controllers_v2: str = "") -> Hierarchies | None:
    """From `/proc/self/mountinfo` and, of version 2, its `cgroup.controllers`.

    None where the CPU and memory controllers are in neither.
    """
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = Path(before.split()[4]), after.split()[0]
        if kind == "cgroup":
            names = after.split()[2].split(",")
            v1 |= {name: place for name in USED_V1 if name in names}
        elif kind == "cgroup2":
            v2 = place
    if all(name in v1 for name in NEEDED):
        return Hierarchies(1, v1)
    if v2 is not None and all(name in controllers_v2.split() for name in NEEDED):
        return Hierarchies(2, dict.fromkeys(NEEDED, v2))
    return None


def quota(cores: float) -> tuple[int, int]:
    """(quota, period) in microseconds for so many cores."""
    period = PERIOD_US
    if cores * period < SLICE_US:
        period = min(LONGEST_PERIOD_US, -int(-SLICE_US // cores))
    return max(LEAST_QUOTA_US, round(cores * period)), period


@dataclass(frozen=True)
class Group:
    """One board's groups; `lab` is the laboratory's own name for them all (`csdflab-lab`)."""

    found: Hierarchies
    lab: str
    name: str
    board: Board

    def folder(self, controller: str) -> Path:
        """The board's group under a controller."""
        return self.found.roots[controller] / self.lab / self.name

    def slice_folder(self, controller: str) -> Path:
        """The group that the CPU quota holds for."""
        own = self.folder(controller)
        return own / COMPUTE if self.board == "accelerator" else own

    @property
    def join(self) -> tuple[Path, ...]:
        """Files that a process of this board writes its id to."""
        return tuple(root / self.lab / self.name / "cgroup.procs" for root in self.found.trees)

    def thread_files(self) -> tuple[Path, ...]:
        """Files that the id of a thread is written to, to be in the slice."""
        name = "tasks" if self.found.version == 1 else "cgroup.threads"
        return tuple(folder / name for folder in self._compute_folders())

    def _compute_folders(self) -> tuple[Path, ...]:
        if self.board != "accelerator":
            return ()
        names = [name for name in ("cpu", "cpuacct") if name in self.found.roots]
        return tuple(dict.fromkeys(self.slice_folder(name) for name in names))

    def make(self, board: DeviceConfig) -> tuple[Action, ...]:
        """Make the groups and bound the memory; the CPU is bounded by `set_cpu`."""
        actions: list[Action] = [MakeFolder(file.parent) for file in self.join]
        actions += self._limit_memory(board.memory)
        for folder in self._compute_folders():
            actions.append(MakeFolder(folder))
            if self.found.version == 2:
                actions.append(Write(folder / "cgroup.type", "threaded"))
                actions.append(Write(folder.parent / "cgroup.subtree_control", "+cpu"))
        return tuple(actions)

    def _limit_memory(self, limit_bytes: int | None) -> list[Action]:
        if limit_bytes is None:
            return []
        folder = self.folder("memory")
        if self.found.version == 2:
            return [
                Write(folder / "memory.max", str(limit_bytes)),
                Write(folder / "memory.swap.max", "0", required=False),
            ]
        return [
            Write(folder / "memory.limit_in_bytes", str(limit_bytes)),
            Write(folder / "memory.memsw.limit_in_bytes", str(limit_bytes), required=False),
        ]

    def set_cpu(self, cores: float) -> tuple[Action, ...]:
        """Bound the slice's CPU time."""
        folder = self.slice_folder("cpu")
        quota_us, period_us = quota(cores)
        if self.found.version == 2:
            return (Write(folder / "cpu.max", f"{quota_us} {period_us}"),)
        return (
            Write(folder / "cpu.cfs_quota_us", "-1"),  # else a longer period may be refused
            Write(folder / "cpu.cfs_period_us", str(period_us)),
            Write(folder / "cpu.cfs_quota_us", str(quota_us)),
        )


def make_all(found: Hierarchies, lab: str, *, first: bool) -> tuple[Action, ...]:
    """Make the group that a laboratory's boards lie in; `first`: before all else on the machine."""
    actions: list[Action] = [MakeFolder(root / lab) for root in found.trees]
    if found.version == 2:
        root = found.roots["cpu"]
        actions += [
            Write(place / "cgroup.subtree_control", "+cpu +memory") for place in (root, root / lab)
        ]
        if first:
            actions.append(Write(root / lab / "cpu.weight", str(FIRST_WEIGHT)))
    elif first:
        actions.append(Write(found.roots["cpu"] / lab / "cpu.shares", str(FIRST_SHARES)))
    return tuple(actions)


def existing(found: Hierarchies, labs: Iterable[str]) -> Iterable[Path]:
    """All groups of these names that there are, those within others first. (Reads the tree.)"""
    for top in (root / lab for root in found.trees for lab in labs):
        if top.is_dir():
            below = [path for path in top.rglob("*") if path.is_dir()]
            yield from sorted(below, key=lambda path: len(path.parts), reverse=True)
            yield top
