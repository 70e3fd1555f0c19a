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
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

PIECE_BYTES = max(16 << 10, mmap.PAGESIZE)
"""Half the size saves 0.7 MB more and costs the kernel as much: a mapping is 220 bytes there."""

_MADV_DONTNEED = 4
_MADV_DONTDUMP = 16
_PAGEMAP_ENTRY_BYTES = 8
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61

_PT_LOAD, _PF_X, _PF_W = 1, 1, 2
_ADDRESS_BITS = 8 * ctypes.sizeof(ctypes.c_void_p)


class _Header(ctypes.Structure):
    """Elf64_Phdr of elf(5)."""

    _fields_ = (
        ("p_type", ctypes.c_uint32),
        ("p_flags", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("p_offset", "p_vaddr", "p_paddr")),
        *((name, ctypes.c_uint64) for name in ("p_filesz", "p_memsz", "p_align")),
    )


class _Object(ctypes.Structure):
    """The beginning of dl_phdr_info of dl_iterate_phdr(3)."""

    _fields_ = (
        ("dlpi_addr", ctypes.c_uint64),
        ("dlpi_name", ctypes.c_char_p),
        ("dlpi_phdr", ctypes.POINTER(_Header)),
        ("dlpi_phnum", ctypes.c_uint16),
    )


_TAKE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Object), ctypes.c_size_t, ctypes.c_void_p)


class _Mapping(NamedTuple):
    """Addresses of a loaded object that nothing may write to; whether they hold code."""

    start: int
    end: int
    is_code: bool
    file: str


def forget_code_pages() -> None:
    """Unmap the pages of all code and of what is only read beside it (Linux).

    Of the program and its libraries only what nothing may write to. Pages of constants that were
    written to all the same (addresses that the loader filled in) are left alone.
    """
    advise = _madvise()
    for mapping in _read_only():
        if mapping.is_code:
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
    """The parts of loaded objects that nothing may write to, by the dynamic loader's own list.

    That takes a fifteenth of what /proc/self/maps takes, which has a line for every piece. Empty
    where there is no such list (glibc and musl have one).
    """
    found: list[_Mapping] = []
    count = 0

    def take(told: Any, _size: int, _data: Any) -> int:
        nonlocal count
        count += 1
        name = os.fsdecode(told.contents.dlpi_name or b"")
        if count == 1 or name.startswith("/"):  # the program comes first, without a name
            found.extend(_read_only_segments(told.contents, name))
        return 0

    libc = ctypes.CDLL(None)
    if _ADDRESS_BITS == 64 and hasattr(libc, "dl_iterate_phdr"):
        libc.dl_iterate_phdr(_TAKE(take), None)
    return found


def _read_only_segments(loaded: _Object, name: str) -> Iterator[_Mapping]:
    page = mmap.PAGESIZE
    for header in loaded.dlpi_phdr[: loaded.dlpi_phnum]:
        if header.p_type == _PT_LOAD and not header.p_flags & _PF_W:
            start = loaded.dlpi_addr + header.p_vaddr
            end = start + header.p_memsz
            is_code = bool(header.p_flags & _PF_X)
            yield _Mapping(start // page * page, -(-end // page) * page, is_code, name)


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
