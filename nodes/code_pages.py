"""Holds of program code only what runs.

Importing an engine runs megabytes of code once (operators registering themselves), and around each
page that is touched the kernel maps what else of the file is in the page cache: 16 pages or more,
and most of all right after an installation, when all of the file is cached. Of ONNX Runtime's code
a convolutional network runs 0.8 MB, and 8 MB were mapped. So we let go of what was mapped, and have
the engine's library mapped in pieces, since the kernel maps nothing around that lies in another
mapping.

Nothing of it is lost: a page is mapped again from the page cache when it is needed.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PIECE_BYTES = max(16 << 10, mmap.PAGESIZE)
"""Half the size saves 0.7 MB more and costs the kernel as much: a mapping is 220 bytes there."""

_MADV_DONTNEED = 4
_MADV_DONTDUMP = 16
_PAGEMAP_ENTRY_BYTES = 8
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61


class _Mapping(NamedTuple):
    """Addresses that belong to one file, with the same permissions throughout."""

    start: int
    end: int
    permissions: str
    file: str


def forget_code_pages() -> None:
    """Unmap the pages of all code and of what is only read beside it (Linux).

    Only of private mappings of files that nothing may write to. Where such a mapping was written to
    before (addresses that the loader filled in), the pages concerned are left alone.
    """
    advise = _madvise()
    for mapping in _read_only():
        if mapping.permissions == "r-xp":
            advise(mapping.start, mapping.end - mapping.start, _MADV_DONTNEED)
        else:
            for start, end in _as_in_file(mapping):
                advise(start, end - start, _MADV_DONTNEED)


def map_in_pieces(library: str) -> None:
    """Have loaded files with `library` in their name mapped by PIECE_BYTES at a time (Linux).

    Neighbours must differ, or they would be one mapping again: every other piece is left out of
    core dumps, which hold no unchanged pages of files in any case.
    """
    advise = _madvise()
    for mapping in _read_only():
        if library in Path(mapping.file).name:
            for start in range(mapping.start, mapping.end, 2 * PIECE_BYTES):
                advise(start, min(PIECE_BYTES, mapping.end - start), _MADV_DONTDUMP)


def _madvise() -> ctypes._NamedFuncPointer:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc.madvise


def _read_only() -> list[_Mapping]:
    """Private mappings of files that nothing may write to, pieces put together again."""
    found: list[_Mapping] = []
    with Path("/proc/self/maps").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            addresses, permissions, _, _, _, *path = line.split(maxsplit=5)
            if permissions in ("r-xp", "r--p") and path and path[0].startswith("/"):
                start, end = (int(address, 16) for address in addresses.split("-"))
                mapping = _Mapping(start, end, permissions, path[0].rstrip("\n"))
                if found and found[-1] == mapping._replace(start=found[-1].start, end=start):
                    mapping = mapping._replace(start=found.pop().start)
                found.append(mapping)
    return found


def _as_in_file(mapping: _Mapping) -> Iterator[tuple[int, int]]:
    """The parts of `mapping` of which this process has no pages of its own; none where the kernel
    does not tell."""
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
            pagemap.seek(mapping.start // mmap.PAGESIZE * _PAGEMAP_ENTRY_BYTES)
            pages = (mapping.end - mapping.start) // mmap.PAGESIZE
            entries = memoryview(pagemap.read(pages * _PAGEMAP_ENTRY_BYTES)).cast("Q")
    except OSError:
        return
    start = mapping.start
    for number, entry in enumerate(entries):
        if entry & _SWAPPED or entry & (_PRESENT | _OF_FILE) == _PRESENT:
            page = mapping.start + number * mmap.PAGESIZE
            if start < page:
                yield start, page
            start = page + mmap.PAGESIZE
    end = mapping.start + len(entries) * mmap.PAGESIZE
    if start < end:
        yield start, end
