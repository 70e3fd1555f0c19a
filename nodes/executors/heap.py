"""The C library's heap, below Python's and the engines' allocators.

Left as it is where that serves best: a lower mmap threshold would give each tensor's memory back at
once, but then every frame's tensors are faulted in anew, which costs ResNet50 14 % more CPU
when cut into 12 subnets and 38 % when cut into 40 (single runs of `benchmarks/executor_memory.py`).
"""

from __future__ import annotations

import ctypes

_M_ARENA_MAX = -8


def share_one_heap() -> None:
    """Let all threads allocate from one heap (glibc only), so that one reuses what another freed.

    glibc gives each thread a heap of its own, and never shrinks those but the first: a tensor that
    the socket's thread freed would stay resident beside the one that the engine's thread makes.
    Takes effect for threads that have not allocated yet.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


def give_back_free_memory() -> None:
    """Return what the heap holds without using it to the operating system (glibc only)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
