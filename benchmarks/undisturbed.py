"""Runs measurements before everything else on this machine, so that others hardly disturb them.

As root, this process and all that it starts get a control group whose share of the CPUs is the
largest there is (2¹⁸ beside the usual 2¹⁰, or weight 10000 beside 100). The figures state whether
that was possible. It does not help against processes that use the memory or the other thread of the
same core.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

VERSION_1 = Path("/sys/fs/cgroup/cpu")
VERSION_2 = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def undisturbed() -> Iterator[str]:
    """While inside, this process comes first; yields a phrase that says by what means.

    Processes that it starts may keep their bytecode, as on a board: to compile all modules of
    an agent's processes takes longer than what they measure.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
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
    yield "with the same priority as everything else"


class Others:
    """How much of this machine's CPUs others use, from its making on.

    `elsewhere_s` returns the CPU seconds of processes that are not ours by descent and yet no
    others, such as a laboratory's boards."""

    def __init__(self, elsewhere_s: Callable[[], float] = lambda: 0.0) -> None:
        self._elsewhere_s = elsewhere_s
        self._began = self._look_s(), time.monotonic()

    def share(self) -> float:
        """In 0..1 of all CPUs. Processes that we started count as others until they have ended."""
        before_s, began_s = self._began
        spent_s = self._look_s() - before_s
        return max(0.0, spent_s / (time.monotonic() - began_s) / (os.cpu_count() or 1))

    def _look_s(self) -> float:
        return busy_cpu_s() - _own_s() - self._elsewhere_s()


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def busy_cpu_s() -> float:
    """Seconds that all CPUs together have computed since the machine's start (proc(5))."""
    line = Path("/proc/stat").read_text("ascii").splitlines()[0]
    user, nice, system, _, _, interrupts, soft, stolen = map(int, line.split()[1:9])
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")
