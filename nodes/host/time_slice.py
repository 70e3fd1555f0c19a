"""Request short time slices from the scheduler for the threads that serve the network.

If the executor computes on every CPU that an agent may use, a message that arrives has to wait
until the scheduler runs another thread: up to 3 ms with Linux's default slice. A thread with a
shorter slice gets no more CPU time, but its turn comes sooner. Kernels from 6.12 on grant it to any
process (sched_setattr(2), `sched_runtime` under SCHED_OTHER); older ones ignore the request.

Decision 010 has the measured gain.
"""

from __future__ import annotations

import ctypes
import os
import struct

SHORT_NS = 100_000
"""The shortest slice that kernels grant, in nanoseconds."""

_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274, "armv7l": 380}
"""The system call's number; the C library has no function for it before glibc 2.41."""

_ATTRIBUTES = struct.Struct("IIQiIQQQ")
"""`sched_attr`, version 0: size, policy, flags, nice, priority, runtime, deadline, period."""

_SCHED_OTHER = 0


def ask_for_short_slices() -> None:
    """Request short slices for the calling thread and those that it starts from now on."""
    _ask(SHORT_NS)


def ask_for_usual_slices() -> None:
    """Request default slices for the calling thread and those that it starts from now on."""
    _ask(0)


def _ask(slice_ns: int) -> None:
    number = _SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)
