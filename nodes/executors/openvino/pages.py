"""Drops pages of mapped files from this process's memory (Linux only)."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from pathlib import Path


def drop_pages(files: Iterable[Path]) -> None:
    """Drop this process's pages of `files` wherever they are mapped and unchanged.

    They stay in the kernel's cache and are mapped again when they are read. Only mappings that
    cannot be written are affected, since those hold nothing but the files' content.
    """
    wanted = {str(file.resolve()) for file in files}
    libc = ctypes.CDLL(None)
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        addresses, access, *_, path = line.split(maxsplit=5)
        if path in wanted and "w" not in access:
            begin, end = (int(text, 16) for text in addresses.split("-"))
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)
