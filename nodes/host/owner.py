"""Which process holds an agent, so that it can be seen whether it is still there.

A process is the kernel's boot id, its PID namespace, its PID and its start time: PIDs repeat, and
mean nothing in another container. Of a process in another namespace nothing is known.
"""

from __future__ import annotations

import os
from pathlib import Path

UNKNOWN = "0"
"""The PID namespace where the kernel does not tell it."""


def process_id() -> str:
    """This process, as no other one on any machine is called; empty if the kernel does not tell."""
    boot, pid = _boot(), os.getpid()
    namespace = _namespace()
    return f"{boot}/{namespace}-{pid}-{_started(pid)}" if boot and namespace != UNKNOWN else ""


def has_ended(process: str) -> bool:
    """Whether a `process_id` was one of this machine, and is seen to be gone; False if unknown."""
    boot, _, rest = process.partition("/")
    try:
        namespace, pid, started = rest.split("-")
        if not boot or boot != _boot() or namespace != _namespace() or namespace == UNKNOWN:
            return False
        return _is_gone(int(pid), started)
    except ValueError:
        return False


def _is_gone(pid: int, started: str) -> bool:
    """Whether there is no such process any more, or another one with its PID. Where `/proc` hides
    those of other users, it may be there all the same."""
    now = _started(pid)
    if now:
        return now != started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]") or UNKNOWN
    except OSError:
        return UNKNOWN


def _started(pid: int) -> str:
    """The process's start time in clock ticks since boot; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
