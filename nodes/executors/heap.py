"""The C library's heap, below Python's and the engines' allocators."""

from __future__ import annotations

import ctypes


def give_back_free_memory() -> None:
    """Return what the heap holds without using it to the operating system (glibc only)."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
