"""How often the kernel has ended a process here for want of memory.

The counter is that of the control group that bounds this process and those that it starts. Where it
cannot be read, that of the machine takes its place, on which others' processes count too.
"""

from __future__ import annotations

from pathlib import Path

from nodes.host.control_groups import group_folders

NAME = "oom_kill"
"""What both versions of control groups and the machine call it."""


def kills(proc: Path = Path("/proc")) -> int:
    """How often so far; 0 if it is unknown."""
    places = [proc / "vmstat"]
    try:
        for folder in (group_folders("memory", proc / "self") or ())[:1]:
            places = [folder / "memory.events", folder / "memory.oom_control", *places]
    except (OSError, ValueError):
        pass
    return next((count for count in map(_count, places) if count is not None), 0)


def _count(path: Path) -> int | None:
    try:
        lines = path.read_text("ascii", "replace").splitlines()
    except OSError:
        return None
    found = [line.split()[1:] for line in lines if line.split()[:1] == [NAME]]
    return int(found[0][0]) if found and found[0] and found[0][0].isdigit() else None
