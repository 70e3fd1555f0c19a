"""Lets go of program code that only starting up needed.

Importing an engine runs megabytes of code once (operators registering themselves), and the kernel
maps what lies around it too as far as it is in the page cache: 10 MB more right after an
installation than after a reboot. Nothing of that is needed again, but it stays resident.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

_MADV_DONTNEED = 4


def forget_code_pages() -> None:
    """Unmap the pages of all code (Linux); what runs next is mapped again from the page cache.

    Only executable mappings of files that nothing may write to: unlike data, even read-only data,
    they hold exactly what their file holds, so that nothing can be lost.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        addresses, permissions, _, _, _, *path = line.split(maxsplit=5)
        if permissions == "r-xp" and path and path[0].startswith("/"):
            start, end = (int(address, 16) for address in addresses.split("-"))
            libc.madvise(start, end - start, _MADV_DONTNEED)
