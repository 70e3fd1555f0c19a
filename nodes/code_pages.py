"""Holds of program code only what runs.

Importing an engine runs megabytes of code once (operators registering themselves), and around each
page that is touched the kernel maps what else of the file is in the page cache: 16 pages or more,
and most of all right after an installation, when all of the file is cached. Of ONNX Runtime's code
a convolutional network runs 0.8 MB, and 8 MB were mapped. So we let go of what was mapped, and have
the libraries that run most mapped in pieces, since the kernel maps nothing around that lies in
another mapping.

Nothing of it is lost: a page is mapped again from the page cache when it is needed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

PIECE_BYTES = max(16 << 10, mmap.PAGESIZE)
"""Half the size saves 0.7 MB more and costs the kernel as much: a mapping is 220 bytes there."""

USED = ("onnxruntime", "python", "libc.so", "libstdc++", "zmq")
"""In the names of the files whose code an agent runs, a little of each: its engine, the interpreter
and its extensions, what they stand on. Of others next to nothing is mapped."""

_MADV_DONTNEED = 4
_MADV_DONTDUMP = 16

_PT_LOAD, _PT_DYNAMIC, _PF_W = 1, 2, 2
_DT_NULL, _DT_TEXTREL, _DT_FLAGS, _DF_TEXTREL = 0, 22, 30, 4
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
    """dl_phdr_info of dl_iterate_phdr(3); the counts of loads and unloads are its newer part."""

    _fields_ = (
        ("dlpi_addr", ctypes.c_uint64),
        ("dlpi_name", ctypes.c_char_p),
        ("dlpi_phdr", ctypes.POINTER(_Header)),
        ("dlpi_phnum", ctypes.c_uint16),
        ("dlpi_adds", ctypes.c_ulonglong),
        ("dlpi_subs", ctypes.c_ulonglong),
    )


_TAKE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Object), ctypes.c_size_t, ctypes.c_void_p)


class _Mapping(NamedTuple):
    """Addresses of a loaded object that nothing writes to: code, and data that are only read."""

    start: int
    end: int
    file: str


class _Listed(NamedTuple):
    """What was loaded when so many objects had been loaded and unloaded, ever."""

    changes: tuple[int, int]
    mappings: tuple[_Mapping, ...]


_listed = _Listed((-1, -1), ())


def forget_code_pages() -> None:
    """Unmap the pages of all code and of what is only read beside it (Linux).

    Of the program and its libraries only what nothing may write to. What the loader filled in
    (addresses) lies elsewhere; an object whose code it had to fill in as well is left alone.
    """
    advise = _madvise()
    for mapping in _read_only():
        advise(mapping.start, mapping.end - mapping.start, _MADV_DONTNEED)


def map_in_pieces(libraries: tuple[str, ...] = USED) -> None:
    """Have loaded files with one of `libraries` in their name mapped by PIECE_BYTES at a time
    (Linux).

    Neighbours must differ, or they would be one mapping again: every other piece is left out of
    core dumps, which hold no unchanged pages of files in any case.
    """
    advise = _madvise()
    for mapping in _read_only():
        if any(library in Path(mapping.file).name for library in libraries):
            for start in range(mapping.start, mapping.end, 2 * PIECE_BYTES):
                advise(start, min(PIECE_BYTES, mapping.end - start), _MADV_DONTDUMP)


def _madvise() -> ctypes._NamedFuncPointer:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc.madvise


def _read_only() -> tuple[_Mapping, ...]:
    """The parts of loaded objects that nothing may write to, by the dynamic loader's own list.

    It is read again only if something was loaded since, and that takes a fifteenth of reading
    /proc/self/maps, which has a line for every piece. Empty where there is no such list (glibc and
    musl have one).
    """
    global _listed  # noqa: PLW0603 - of the process, as what is loaded is
    libc = ctypes.CDLL(None)
    if _ADDRESS_BITS != 64 or not hasattr(libc, "dl_iterate_phdr"):
        return ()
    listed = _listed
    changes, found = (0, 0), list[_Mapping]()

    def take(told: Any, _size: int, _data: Any) -> int:
        nonlocal changes
        of, is_program = told.contents, changes == (0, 0)
        changes = of.dlpi_adds, of.dlpi_subs
        if changes == listed.changes:
            return 1
        name = sys.executable if is_program else os.fsdecode(of.dlpi_name or b"")
        if name.startswith("/"):
            found.extend(_read_only_segments(of, name))
        return 0

    if libc.dl_iterate_phdr(_TAKE(take), None):
        return listed.mappings
    _listed = _Listed(changes, tuple(found))
    return _listed.mappings


def _read_only_segments(loaded: _Object, name: str) -> list[_Mapping]:
    """Neighbours are one."""
    headers = loaded.dlpi_phdr[: loaded.dlpi_phnum]
    if any(_fills_in_code(loaded, one) for one in headers if one.p_type == _PT_DYNAMIC):
        return []
    found: list[_Mapping] = []
    for one in headers:
        if one.p_type == _PT_LOAD and not one.p_flags & _PF_W:
            start = loaded.dlpi_addr + one.p_vaddr
            end = -(-(start + one.p_memsz) // mmap.PAGESIZE) * mmap.PAGESIZE
            start = start // mmap.PAGESIZE * mmap.PAGESIZE
            if found and found[-1].end == start:
                start = found.pop().start
            found.append(_Mapping(start, end, name))
    return found


def _fills_in_code(loaded: _Object, header: _Header) -> bool:
    """Whether the loader writes to what nothing else may write to, by the dynamic section."""
    words = header.p_memsz // ctypes.sizeof(ctypes.c_uint64)
    section = list((ctypes.c_uint64 * words).from_address(loaded.dlpi_addr + header.p_vaddr))
    for tag, value in zip(section[::2], section[1::2], strict=False):
        if tag == _DT_NULL:
            break
        if tag == _DT_TEXTREL or (tag == _DT_FLAGS and value & _DF_TEXTREL):
            return True
    return False
