"""Tune the C library's heap, on which Python's and the engines' allocators build (glibc only).

An agent allocates and frees the same tensors frame after frame, and the channels' capacities bound
their memory. The heap therefore keeps freed memory: if it were returned to the system and allocated
again, the kernel would map and clear its pages for every tensor, which costs more than moving the
tensor. ResNet50 cut into 12 and 40 subnets took 14 % and 38 % more CPU with a low mmap threshold
(single runs), and a FIFO moved 12.8 MB tensors 1.3 to 2 times as fast with the thresholds below as
with glibc's own.
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
"""The mmap threshold: longer blocks are mapped separately. It is the largest that glibc takes."""

SMALLEST_MAPPED_BYTES = 64 << 10
"""The mmap threshold where freed memory is to be returned to the system at once."""

KEEP_BYTES = 1 << 30
"""The trim threshold: free memory at the heap's end stays up to this size, or until
`give_back_free_memory`."""


TRIM_DELAY_S = 1.0
"""How long other threads may take to free the memory of something that was closed."""

TRIM_PERIOD_S = 5.0
"""The shortest time between two trims."""


def keep_one_heap() -> None:
    """Let all threads allocate from one heap (arena), which keeps what they free.

    By default glibc gives each thread its own arena: a tensor that the socket's thread has freed
    would stay resident in addition to the one that the engine's thread allocates. This takes effect
    for threads that have not allocated yet.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGEST_IN_HEAP_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, KEEP_BYTES)


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Map large blocks separately within the `with` block, in a process that keeps one heap.

    While an engine loads a subnet, it packs one matrix after the other and frees each copy again.
    In the heap, these copies would leave holes between blocks that stay: a network that reads
    captchas (`ddddocr`, 54 MB of weights, of which an LSTM has 17) took 8 MB more at its peak.
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
    """Return large blocks to the operating system as soon as they are freed.

    It is meant for a process that reads all weights once. Optimising ResNet50 (102 MB of weights)
    had a peak of 171 MB instead of 236 MB, and took as long.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, SMALLEST_MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, SMALLEST_MAPPED_BYTES)


def give_back_free_memory() -> None:
    """Return the heap's free memory to the operating system (malloc_trim(3))."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


class HeapTrimmer:
    """Returns the heap's free memory to the system some time after something was closed.

    Memory that one thread releases is often freed by another one: ZeroMQ's thread frees the buffers
    of a connection a moment after it was closed. Trimming at once would miss these, and trimming
    too often would slow a stream down, whose memory would have to be mapped again.
    """

    def __init__(self) -> None:
        self.due_s: float | None = None
        """When to call `trim_if_due`, on the caller's clock; None if nothing is scheduled."""
        self._is_scheduled_again = False
        self._trimmed_s = -inf

    def schedule(self, now_s: float) -> None:
        """Schedule a trim, because something is being closed that may have much memory."""
        if self.due_s is None:
            self.due_s = max(now_s + TRIM_DELAY_S, self._trimmed_s + TRIM_PERIOD_S)
        else:
            self._is_scheduled_again = True

    def trim_if_due(self, now_s: float) -> None:
        """Return free memory to the system if a trim is due."""
        if self.due_s is None or now_s < self.due_s:
            return
        give_back_free_memory()
        self._trimmed_s = now_s
        self.due_s = now_s + TRIM_PERIOD_S if self._is_scheduled_again else None
        self._is_scheduled_again = False
