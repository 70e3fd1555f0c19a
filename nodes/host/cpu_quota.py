"""How much of a core a thread may have: CPU quotas of control groups, of version 1 and 2.

A quota makes a device slower, as a slower processor would. Whoever leaves waits for a CPU out of a
time that was measured (`nodes.host.usage.waited_s`) leaves out with them what a quota stopped,
because the kernel counts both as one. How long it stopped (`throttled_time` in `cpu.stat`) does not
tell them apart either: it is counted for all threads and CPUs of a group together, and a short run
either meets a stop or does not. So the stops are not measured, they are put back: a second of
computing takes 1/quota seconds.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

from nodes.host.control_groups import group_folders

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
