"""What this process uses, from /proc: a device has no psutil."""

from __future__ import annotations

import os
import time
from pathlib import Path

from nodes.core.events import Usage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def usage() -> Usage:
    """Resident, peak and anonymous memory in bytes, and the CPU seconds of all threads."""
    fields = dict.fromkeys(("VmRSS", "VmHWM", "RssAnon"), 0)
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        if name in fields:
            fields[name] = int(value.split()[0]) * 1024
    return Usage(fields["VmRSS"], fields["VmHWM"], fields["RssAnon"], time.process_time())


def resident_bytes() -> int:
    """Resident memory alone, which costs a fifth of `usage`."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def waited_s() -> float | None:
    """Seconds for which the calling thread could have run but was given no CPU, since its start.

    The kernel's count (`/proc/PID/task/TID/schedstat`, nanoseconds), to which it makes no
    difference whether others had the CPUs or a quota was used up; None where it keeps none.
    """
    try:
        return int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def machine() -> str:
    """What this machine is: its board or processor, and its instruction set."""
    architecture = os.uname().machine
    for path, wanted in (("/proc/device-tree/model", ""), ("/proc/cpuinfo", "model name")):
        try:
            text = Path(path).read_text("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith(wanted):
                model = line.removeprefix(wanted).strip("\t :\0")
                return f"{model[:200]} ({architecture})"
    return architecture
