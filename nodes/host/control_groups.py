"""Read the CPU quota and the memory limit of a process's control groups (versions 1 and 2).

A CPU quota makes a device slower, as a slower processor would. A measured time must therefore
include the stops that the quota causes, but not waits for a CPU that other processes use. The
kernel counts both as one (`nodes.host.usage.waited_s`). Its count of the stops alone
(`throttled_time` in `cpu.stat`) does not help: it sums over all threads and CPUs of a group, and a
short run either meets a stop or does not. So all waits are subtracted, and the stops are computed:
one second of computing takes 1/quota seconds (`undisturbed_s`).

Only pages that no file backs count against a limit of memory, because the kernel drops the others
where memory is short. All processes of a control group share its limit.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from nodes.host.kernel_files import table_of, text_of

ProcEntry: TypeAlias = str
"""An entry in /proc: `thread-self` is the calling thread, `self` the first thread of its process,
`self/task/7` another thread; each may be in another group."""

_UNLIMITED = 1 << 60
"""Version 1 writes about 2⁶³ where there is no limit."""


def group_folders(controller: str, process: Path) -> list[Path] | None:
    """Return the folder of the group that bounds `process`, and those of all visible groups above.

    `process` is a folder in /proc. The list is empty if the kernel has no such groups; the result
    is None if they are not visible from here. Raises OSError or ValueError if the files in /proc
    are not as expected.
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
    """Return the type of the file system and the group, from the lines of `/proc/PID/cgroup`."""
    found = None
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return "cgroup", PurePosixPath(path)
        if number == "0":
            found = "cgroup2", PurePosixPath(path)
    return found


def _folders(mounts: list[str], kind: str, group: PurePosixPath, controller: str) -> list[Path]:
    """Return the folders of the group and of those above, from `/proc/PID/mountinfo`."""
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


def quota_cores(entry: ProcEntry = "thread-self", proc: Path = Path("/proc")) -> float | None:
    """Return the smallest quota of its group and those above, in cores; infinite without any.

    The result is None if its group is not visible from here.
    """
    try:
        folders = group_folders("cpu", proc / entry)
        if folders is None:
            return None
        return min((granted_cores(folder) for folder in folders), default=math.inf)
    except (OSError, ValueError):
        return None


def core_share(entry: ProcEntry = "thread-self", threads: int = 1) -> float | None:
    """Return the fraction of a core, at most 1, for each of `threads` threads that all compute.

    The result is None if the quota is unknown.
    """
    cores = quota_cores(entry)
    return None if cores is None else min(1.0, cores / threads)


def undisturbed_s(
    passed_s: float, computed_s: float, waited_s: float | None, core_share: float | None
) -> float:
    """Return the seconds that a thread would have taken under its quota with the CPUs to itself.

    It took `passed_s`: it computed for `computed_s`, waited for a CPU or because of its quota for
    `waited_s`, and waited for something else, such as an accelerator, in the rest. If the waits or
    the share of a core are unknown (None), no wait is subtracted.
    """
    if waited_s is None or core_share is None:
        return max(passed_s, computed_s)
    elsewhere_s = max(0.0, passed_s - waited_s - computed_s)  # the clocks are read in turn
    return elsewhere_s + computed_s / core_share


def granted_cores(folder: Path) -> float:
    """Return the cores that a group's own quota grants; infinite without one.

    Raises ValueError if its files are not as expected.
    """
    quota, _, period = text_of(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = (text_of(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota in ("", "max", "-1"):
        return math.inf
    return int(quota) / int(period)


def room_bytes(proc: Path = Path("/proc")) -> float:
    """Return the bytes that this process can still allocate; infinite if unknown.

    It is the least of what the machine and each of the process's control groups have left.
    """
    room = table_of(proc / "meminfo").get("MemAvailable:", math.inf) * 1024
    try:
        folders = group_folders("memory", proc / "self") or ()
    except (OSError, ValueError):
        return room
    limits = [found for folder in folders if (found := memory_limit(folder)) is not None]
    return min([room, *(limit - used for limit, used in limits)])


def available_bytes() -> int | None:
    """Return `room_bytes` as a whole number, at least 0; None if it is unknown."""
    room = room_bytes()
    return None if math.isinf(room) else max(0, int(room))


def memory_limit(folder: Path) -> tuple[int, int] | None:
    """Return a group's limit of memory, and how much of it the kernel cannot free, in bytes.

    Returns None for a group without a limit.
    """
    for name, used in (("memory.max", "anon"), ("memory.limit_in_bytes", "total_rss")):
        limit = text_of(folder / name)
        if limit.isdigit() and int(limit) < _UNLIMITED:
            return int(limit), table_of(folder / "memory.stat").get(used, 0)
    return None
