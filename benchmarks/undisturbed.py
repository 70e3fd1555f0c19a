"""Runs measurements before everything else on this machine, so that others hardly disturb them.

As root, this process and all that it starts get a control group whose share of the CPUs is the
largest there is (2¹⁸ beside the usual 2¹⁰, or weight 10000 beside 100). Otherwise they get priority
by `nice`, or nothing if that is not allowed either. The figures state which of these was possible.
It does not help against processes that use the memory or the other thread of the same core.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

VERSION_1 = Path("/sys/fs/cgroup/cpu")
VERSION_2 = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def undisturbed() -> Iterator[str]:
    """While inside, this process comes first; yields a phrase that says by what means."""
    for root, key, share in (
        (VERSION_1, "cpu.shares", "262144"),
        (VERSION_2, "cpu.weight", "10000"),
    ):
        group = root / f"csdf-benchmark-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / key).write_text(share, "ascii")
            (group / "cgroup.procs").write_text(str(os.getpid()), "ascii")
        except OSError:
            group.rmdir()
            continue
        try:
            yield f"in a control group with {key} {share}"
        finally:
            (root / "cgroup.procs").write_text(str(os.getpid()), "ascii")
            with contextlib.suppress(OSError):  # a process that we started may still be ending
                group.rmdir()
        return
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    except OSError:
        yield "with the same priority as everything else"
        return
    try:
        yield "with priority -15"
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


class Others:
    """How much of this machine's CPUs others use, from its making on."""

    def __init__(self) -> None:
        self._began = busy_cpu_s(), _own_s(), time.monotonic()

    def share(self) -> float:
        """In 0..1 of all CPUs. Processes that we started count as others until they have ended."""
        busy_s, own_s, began_s = self._began
        spent_s = busy_cpu_s() - busy_s - (_own_s() - own_s)
        return max(0.0, spent_s / (time.monotonic() - began_s) / (os.cpu_count() or 1))


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def busy_cpu_s() -> float:
    """Seconds that all CPUs together have computed since the machine's start (proc(5))."""
    line = Path("/proc/stat").read_text("ascii").splitlines()[0]
    user, nice, system, _, _, interrupts, soft, stolen = map(int, line.split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
