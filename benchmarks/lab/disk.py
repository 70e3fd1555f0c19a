"""Fills a board's disk, and frees it again."""

from __future__ import annotations

import os
from pathlib import Path

NAME = "ballast"
BLOCK_BYTES = 4096


def fill(folder: Path) -> int:
    """Leave no room on the file system of a folder; returns how much there was, in bytes.

    Room is asked for in ever smaller pieces, because a part of what is free becomes the file
    system's own notes about the rest.
    """
    before = piece = _free(folder)
    with (folder / NAME).open("ab") as file:
        while piece >= BLOCK_BYTES:
            taken = _take(file.fileno(), piece)
            piece = min(piece, _free(folder)) if taken else piece // 2
    return before


def free(folder: Path) -> None:
    """Give it back."""
    (folder / NAME).unlink(missing_ok=True)


def _take(descriptor: int, piece: int) -> bool:
    """Make a file so many bytes longer; False if there is no room for them."""
    try:
        os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, piece)
    except OSError:
        return False
    return True


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
