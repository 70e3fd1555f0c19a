"""How much more memory this process and its children can have before somebody must be killed.

Pages of files do not count: the kernel drops them where memory is short. What does is what no file
backs, of all processes of a control group together.
"""

from __future__ import annotations

import math
from pathlib import Path

from nodes.host.control_groups import group_folders

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
