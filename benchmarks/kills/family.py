"""Finds every process below this one, and says what each is.

This process is the reaper of all below it (PR_SET_CHILD_SUBREAPER): one whose parent was killed
becomes its child, and can be seen to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.daemon import STARTING, Daemon
from benchmarks.processes import below, children

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let orphans below this process become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


class Family:
    """The daemons, and all that they have started."""

    def __init__(self, daemons: Sequence[Daemon]) -> None:
        self.daemons = daemons
        self.orphaned_s: dict[int, float] = {}
        """When each orphan that still runs was first seen."""
        self.longest_orphan_s = 0.0

    def members(self) -> Mapping[str, Sequence[int]]:
        """Return the processes that run now, by role: a daemon's name, or that with `child` or
        `grandchild` behind it."""
        found: dict[str, list[int]] = {}
        for daemon in self.daemons:
            if (pid := daemon.pid) is not None:
                found.setdefault(daemon.name, []).append(pid)
                for child in children(pid):
                    found.setdefault(f"{daemon.name} child", []).append(child)
                    for other in below(child):
                        found.setdefault(f"{daemon.name} grandchild", []).append(other)
        return found

    def look(self) -> Sequence[int]:
        """Return the orphans that still run; note how long the others took to end."""
        with STARTING:
            known = {daemon.pid for daemon in self.daemons}
            orphans = [pid for pid in children(os.getpid()) if pid not in known]
            for pid in orphans:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            left = [pid for pid in orphans if Path(f"/proc/{pid}").exists()]
        now_s = time.monotonic()
        for pid, seen_s in list(self.orphaned_s.items()):
            if pid not in left:
                self.longest_orphan_s = max(self.longest_orphan_s, now_s - seen_s)
                del self.orphaned_s[pid]
        for pid in left:
            self.orphaned_s.setdefault(pid, now_s)
        return left
