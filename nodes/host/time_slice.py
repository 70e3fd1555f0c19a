"""Short turns on the CPU for the threads that serve the network.

Where the executor computes on every CPU that an agent may use, a message that comes has to wait
until the scheduler lets another thread run: with Linux's usual slice, up to 3 ms. A thread that
asks for a shorter slice gets no more of the CPU, but its turn comes sooner. Kernels from 6.12 on
grant it to anybody (sched_setattr(2), `sched_runtime` under SCHED_OTHER); older ones ignore it.

Decision 010 has what it gains.
"""

from __future__ import annotations

import ctypes
import os
import struct

SHORT_NS = 100_000
"""The shortest slice that kernels grant."""

_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274, "armv7l": 380}
"""The system call's number; the C library has no function for it before glibc 2.41."""

_ATTRIBUTES = struct.Struct("IIQiIQQQ")
"""`sched_attr`, version 0: size, policy, flags, nice, priority, runtime, deadline, period."""

_SCHED_OTHER = 0


def ask_for_short_slices() -> None:
    """For the calling thread, and those that it starts from now on."""
    _ask(SHORT_NS)


def ask_for_usual_slices() -> None:
    """Undo that, for the calling thread and those that it starts from now on."""
    _ask(0)


def _ask(slice_ns: int) -> None:
    number = _SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, _SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    ctypes.CDLL(None).syscall(number, 0, attributes, 0)
