"""Drops pages of mapped files from this process's memory (Linux only)."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

_EVERY_S = 0.01
"""How often pages are dropped while something reads them."""


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


@contextmanager
def pages_dropped(files: Iterable[Path]) -> Iterator[None]:
    """Drop the pages of `files` repeatedly while the `with` block reads them, and at its end.

    A process that reads a file once, to copy it, would otherwise hold all of it in addition to the
    copy.
    """
    wanted, is_over = tuple(files), Event()

    def drop() -> None:
        while not is_over.wait(_EVERY_S):
            drop_pages(wanted)

    thread = Thread(target=drop, name="drop pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        drop_pages(wanted)
