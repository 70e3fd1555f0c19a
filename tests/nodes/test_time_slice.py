"""Short time slices, where the kernel grants them."""

from __future__ import annotations

import ctypes
import os
import struct
from threading import Thread

import pytest

from nodes.host.time_slice import SHORT_NS, ask_for_short_slices, ask_for_usual_slices

GETATTR = {"x86_64": 315, "aarch64": 275}


def slice_ns() -> int:
    """The calling thread's slice; 0 where the kernel does not tell."""
    attributes = ctypes.create_string_buffer(48)
    number = GETATTR[os.uname().machine]
    assert ctypes.CDLL(None).syscall(number, 0, attributes, 48, 0) == 0
    return int(struct.unpack("IIQiIQQQ", attributes.raw)[5])


def in_a_thread(seen: list[int]) -> None:
    ask_for_usual_slices()
    seen.append(slice_ns())
    ask_for_short_slices()
    seen.append(slice_ns())
    child = Thread(target=lambda: seen.append(slice_ns()))
    child.start()
    child.join()
    ask_for_usual_slices()
    seen.append(slice_ns())


@pytest.mark.skipif(os.uname().machine not in GETATTR, reason="number of the system call unknown")
def test_threads_inherit_short_slices_until_they_ask_for_usual_ones() -> None:
    if slice_ns() == 0:
        pytest.skip("this kernel has no slices to ask for (it is older than 6.12)")
    seen: list[int] = []
    thread = Thread(target=in_a_thread, args=(seen,))
    thread.start()
    thread.join()
    usual_ns, *rest = seen
    assert rest == [SHORT_NS, SHORT_NS, usual_ns]
    assert usual_ns > SHORT_NS


def test_priority_and_policy_stay() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    ask_for_short_slices()
    ask_for_usual_slices()
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)) == before
