"""Where a process's control groups lie, of version 1 and 2: from `/proc/PID` to their folders.

How much of a core a thread may have: CPU quotas of control groups, of version 1 and 2.

A quota makes a device slower, as a slower processor would. Whoever leaves waits for a CPU out of a
time that was measured (`nodes.host.usage.waited_s`) leaves out with them what a quota stopped,
because the kernel counts both as one. How long it stopped (`throttled_time` in `cpu.stat`) does not
tell them apart either: it is counted for all threads and CPUs of a group together, and a short run
either meets a stop or does not. So the stops are not measured, they are put back: a second of
computing takes 1/quota seconds.

How much more memory this process and its children can have before somebody must be killed.

Pages of files do not count: the kernel drops them where memory is short. What does is what no file
backs, of all processes of a control group together.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from typing import Literal


def group_folders(controller: str, process: Path) -> list[Path] | None:
    """The folder of the group that bounds `process` (a folder of /proc), and all above it that can
    be seen; none where the kernel has no such groups, None where they cannot be seen from here.

    Raises OSError or ValueError for what is not as the kernel writes it.
    """
    try:
        lines = (process / "cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    found = _group(lines, controller)
    if found is None:
        return []
    mounts = (process / "mountinfo").read_text("utf-8", "replace").splitlines()
    return _folders(mounts, *found, controller) or None


def _group(lines: list[str], controller: str) -> tuple[str, PurePosixPath] | None:
    """The kind of file system and the group, from `/proc/PID/cgroup`."""
    found = None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return "cgroup", PurePosixPath(path)
        if number == "0":
            found = "cgroup2", PurePosixPath(path)
    return found


def _folders(mounts: list[str], kind: str, group: PurePosixPath, controller: str) -> list[Path]:
    """The group's folder and all above it that can be seen, from `/proc/PID/mountinfo`."""
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, place = before.split()[3:5]
        found, *_, options = after.split()
        if found != kind or (kind == "cgroup" and controller not in options.split(",")):
            continue
        if group.is_relative_to(root):
            below = group.relative_to(root)
            folder = Path(place) / below
            if folder.is_dir():
                return [folder, *folder.parents[: len(below.parts)]]
    return []


Of = Literal["thread-self", "self"]
"""The calling thread, or its process's first one: each may have a group of its own."""


def quota_cores(of: Of = "thread-self", proc: Path = Path("/proc")) -> float | None:
    """The fewest cores that a quota of its group or of one above grants; infinite without any.

    None if it is in a group whose bounds cannot be seen from here.
    """
    try:
        folders = group_folders("cpu", proc / of)
        if folders is None:
            return None
        return min((_granted(folder) for folder in folders), default=math.inf)
    except (OSError, ValueError):
        return None


def speed(of: Of = "thread-self", threads: int = 1) -> float | None:
    """The part of a core, at most 1, that so many threads of one group have each if all compute.

    None if that cannot be known.
    """
    cores = quota_cores(of)
    return None if cores is None else min(1.0, cores / threads)


def undisturbed_s(
    passed_s: float, computed_s: float, waited_s: float | None, speed: float | None
) -> float:
    """What a thread would have taken if nobody else had wanted the CPUs, but under its quota.

    It took `passed_s`, in which it computed for `computed_s` and waited for a CPU or for its quota
    for `waited_s`; the rest it waited for something else, an accelerator say. Where waits or quota
    are not known (None), nothing is left out.
    """
    if waited_s is None or speed is None:
        return max(passed_s, computed_s)
    elsewhere_s = max(0.0, passed_s - waited_s - computed_s)  # the clocks are read in turn
    return elsewhere_s + computed_s / speed


def _granted(folder: Path) -> float:
    """The cores that a group's own quota grants."""
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text("ascii").split()
        return math.inf if quota == "max" else int(quota) / int(period)
    if (folder / "cpu.cfs_quota_us").exists():
        quota_us = int((folder / "cpu.cfs_quota_us").read_text("ascii"))
        period_us = int((folder / "cpu.cfs_period_us").read_text("ascii"))
        return math.inf if quota_us < 0 else quota_us / period_us
    return math.inf  # the topmost group, or one that the controller does not bound


_ENDLESS = 1 << 60
"""Version 1 writes about 2⁶³ where there is no limit."""


def room_bytes(proc: Path = Path("/proc")) -> float:
    """The least room in any of its control groups and on the machine; infinite if not known."""
    room = _machine_bytes(proc)
    try:
        for folder in group_folders("memory", proc / "self") or ():
            room = min(room, _group_bytes(folder))
    except (OSError, ValueError, KeyError):
        return room
    return room


def _machine_bytes(proc: Path) -> float:
    try:
        return _table(proc / "meminfo")["MemAvailable:"] * 1024
    except (OSError, ValueError, KeyError):
        return math.inf


def _group_bytes(folder: Path) -> float:
    if (folder / "memory.max").exists():
        limit = (folder / "memory.max").read_text("ascii").strip()
        if limit == "max":
            return math.inf
        return int(limit) - _table(folder / "memory.stat")["anon"]
    if (folder / "memory.limit_in_bytes").exists():
        bytes_ = int((folder / "memory.limit_in_bytes").read_text("ascii"))
        if bytes_ >= _ENDLESS:
            return math.inf
        return bytes_ - _table(folder / "memory.stat")["total_rss"]
    return math.inf


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number, whatever follows."""
    lines = (line.split() for line in path.read_text("ascii", "replace").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
