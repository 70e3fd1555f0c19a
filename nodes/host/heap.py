"""The C library's heap, below Python's and the engines' allocators (glibc only).

An agent makes, receives and frees the same tensors frame after frame. What they need is bounded by
the channels' capacities, so the heap keeps it from frame to frame: given back and taken again, its
pages would be cleared and mapped anew for every tensor, which costs more than moving it. ResNet50
cut into 12 and 40 subnets took 14 % and 38 % more CPU with a low mmap threshold (single runs of
`benchmarks/executor_memory.py`), and a FIFO moved 12.8 MB tensors 1.3 to 2 times as fast with the
thresholds below as with glibc's own (`benchmarks/fifo.py`).

Gives the heap's free memory back to the system some time after it was freed.

What is closed or dropped in one thread is often freed in another: ZeroMQ's thread frees what it had
read from a connection, or still held for one, a moment after that was closed. Giving back at once
would miss it, and giving back too often costs whoever streams: what is used again and again has to
be mapped anew.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

LARGEST_IN_HEAP_BYTES = 32 << 20
"""Larger blocks are mapped by themselves; the most that glibc takes."""

SMALLEST_MAPPED_BYTES = 64 << 10
"""Blocks from here on are mapped by themselves where memory is to be given back at once."""

KEEP_BYTES = 1 << 30
"""Free memory at the heap's end is given back beyond this, or by `give_back_free_memory`."""


def keep_one_heap() -> None:
    """Let all threads allocate from one heap, which keeps what they free.

    By itself glibc gives each thread a heap of its own: a tensor that the socket's thread freed
    would stay resident beside the one that the engine's thread makes. Takes effect for threads
    that have not allocated yet.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGEST_IN_HEAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES)


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Map larger blocks by themselves inside the block, in a process that keeps one heap.

    While an engine loads a subnet it packs one matrix after the other and drops each copy again. In
    the heap these copies would lie between blocks that stay, and add up: a network of captchas
    (`ddddocr`, 54 MB of weights, of which an LSTM has 17) took 8 MB more at its peak.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(_M_MMAP_THRESHOLD, SMALLEST_MAPPED_BYTES)
    try:
        yield
    finally:
        libc.mallopt(_M_MMAP_THRESHOLD, LARGEST_IN_HEAP_BYTES)


def give_back_at_once() -> None:
    """Let larger blocks go back to the operating system as soon as they are freed.

    For a process that goes through weights once. Measured, optimising ResNet50 (102 MB of weights):
    a peak of 171 MB instead of 236 MB, and as fast.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, SMALLEST_MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, SMALLEST_MAPPED_BYTES)


def give_back_free_memory() -> None:
    """Return what the heap holds without using it to the operating system."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


FREED_S = 1.0
"""By then, other threads have freed what belonged to something that was closed."""

EVERY_S = 5.0
"""Memory is given back once in so long at most."""


class SpareMemory:
    """`freed` notes that memory is about to be free, `look` gives it back once `due_s` has come."""

    def __init__(self) -> None:
        self.due_s: float | None = None
        """When to `look`, on the clock that the calls tell; None while nothing was freed."""
        self._is_asked_again = False
        self._given_back_s = -inf

    def freed(self, now_s: float) -> None:
        """Something is being closed that may have held much."""
        if self.due_s is None:
            self.due_s = max(now_s + FREED_S, self._given_back_s + EVERY_S)
        else:
            self._is_asked_again = True

    def look(self, now_s: float) -> None:
        """Give free memory back if that is due."""
        if self.due_s is None or now_s < self.due_s:
            return
        give_back_free_memory()
        self._given_back_s = now_s
        self.due_s = now_s + EVERY_S if self._is_asked_again else None
        self._is_asked_again = False
