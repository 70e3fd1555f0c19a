"""Identify a launcher's process, and find out whether a process so identified has ended.

A process is identified by the kernel's boot id, its PID namespace, its PID and its start time,
because PIDs repeat and have no meaning in another container. Nothing can be found out about a
process in another namespace.
"""

from __future__ import annotations

import os
from pathlib import Path

UNKNOWN = "0"
"""The PID namespace if the kernel does not report it."""


def boot_id() -> str:
    """Return the kernel's random identifier of this boot; empty if it is not readable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def process_id() -> str:
    """Return an identifier of this process that no other one has; empty if that is impossible."""
    boot, pid = boot_id(), os.getpid()
    namespace = _namespace()
    return f"{boot}/{namespace}-{pid}-{_started(pid)}" if boot and namespace != UNKNOWN else ""


def has_ended(process: str) -> bool:
    """Return whether a `process_id` is of this machine and its process has ended.

    The result is False if that cannot be found out.
    """
    boot, _, rest = process.partition("/")
    try:
        namespace, pid, started = rest.split("-")
        if not boot or boot != boot_id() or namespace != _namespace() or namespace == UNKNOWN:
            return False
        return _is_gone(int(pid), started)
    except ValueError:
        return False


def _is_gone(pid: int, started: str) -> bool:
    """Return whether the process has ended, and maybe another one has its PID.

    `/proc` may hide the processes of other users; a signal shows whether they exist.
    """
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


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]") or UNKNOWN
    except OSError:
        return UNKNOWN


def _started(pid: int) -> str:
    """Return a process's start time in clock ticks since boot; empty if it is not visible."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
