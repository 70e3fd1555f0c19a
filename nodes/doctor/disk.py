"""Checks a folder that must be written: can it be, by whom, and has its file system room?"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.doctor.findings import Finding, Severity
from nodes.host.private_files import make_file

LEAST_BYTES = 64 << 20
"""Free bytes below which hardly any network can be stored."""

LEAST_FILES = 1000
"""Free inodes below which a cache cannot be used; it has a few files per subnet."""

_OTHERS_WRITE = 0o002


@dataclass(frozen=True, slots=True)
class FolderReading:
    """A folder, and what its file system has.

    `existing` is the folder itself or, if it is missing, the closest one above it. `error` says why
    no file could be written there, as an `errno`; 0 if one was. `mode` and `owner` are those of
    `existing`; `held_bytes` is what the files in the folder occupy already. `free_files` is None
    where the file system counts no inodes.
    """

    folder: Path
    existing: Path
    error: int
    mode: int
    owner: int
    user: int
    free_bytes: int
    free_files: int | None
    held_bytes: int


def read_folder(folder: Path) -> FolderReading:
    """Write a file of 4 KiB into the folder, delete it, and read what its file system has left.

    A folder that is missing is not made: the file is written where the folder would be.
    """
    existing = folder.absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    status = existing.stat()
    system = os.statvfs(existing)
    return FolderReading(
        folder,
        existing,
        _write_error(existing),
        status.st_mode & 0o7777,
        status.st_uid,
        os.geteuid(),
        system.f_bavail * system.f_frsize,
        system.f_favail if system.f_files else None,
        _held_bytes(folder),
    )


def _write_error(folder: Path) -> int:
    """Return the `errno` of an attempt to write a file into the folder; 0 if there was none."""
    try:
        file = make_file(folder, "doctor")
    except OSError as error:
        return error.errno or errno.EIO
    try:
        os.write(file.descriptor, bytes(4096))
        os.fsync(file.descriptor)
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        file.remove()
    return 0


def _held_bytes(folder: Path) -> int:
    """Return the bytes of the files in a folder and below it, as far as they can be seen."""
    held = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                held += os.lstat(os.path.join(place, name)).st_blocks * 512
    return held


def judge_folder(reading: FolderReading, wanted_bytes: int, option: str) -> Iterator[Finding]:
    """Yield what is wrong with a folder that may grow to `wanted_bytes`.

    `option` is the command-line option that names another folder.
    """
    where, place = str(reading.folder), shlex.quote(str(reading.existing))
    if reading.error not in (0, errno.ENOSPC, errno.EDQUOT):
        yield Finding(Severity.ERROR, where, *_unwritable(reading))
        return
    if reading.existing == reading.folder.absolute() and reading.mode & _OTHERS_WRITE:
        yield Finding(
            Severity.ERROR,
            where,
            f"Everybody can write there (mode {reading.mode:04o}), and so change what is computed.",
            f"chmod go-w {place}",
        )
    left = reading.free_bytes / 1e6
    if reading.error in (errno.ENOSPC, errno.EDQUOT) or reading.free_bytes < LEAST_BYTES:
        yield Finding(
            Severity.ERROR,
            where,
            f"Its file system is full: {left:.0f} MB are free. Delete what is not needed (the "
            f"command shows the largest), or name another folder with {option}.",
            f"du -xah {shlex.quote(str(_mount_point(reading.existing)))} | sort -rh | head -n 20",
        )
    elif reading.free_files is not None and reading.free_files < LEAST_FILES:
        yield Finding(
            Severity.ERROR,
            where,
            f"Its file system has room for only {reading.free_files} more files. Delete files "
            f"(the command shows where most are), or name another folder with {option}.",
            f"du -x --inodes {place} | sort -rn | head -n 20",
        )
    elif wanted_bytes > reading.free_bytes + reading.held_bytes:
        fits = max(1, (reading.free_bytes + reading.held_bytes) * 9 // 10_000_000)
        yield Finding(
            Severity.WARNING,
            where,
            f"It may grow to {wanted_bytes / 1e6:.0f} MB, but its file system has only "
            f"{left:.0f} MB left.",
            f"node-agent --cache-bytes {fits}MB",
        )


def _unwritable(reading: FolderReading) -> tuple[str, str]:
    """Return what is wrong with a folder in which no file can be written, and the remedy."""
    place = shlex.quote(str(reading.existing))
    if reading.error == errno.EROFS:
        return (
            "Its file system is read-only. The kernel remounts a worn-out card in this way after "
            "an error; see dmesg.",
            f"sudo mount -o remount,rw {shlex.quote(str(_mount_point(reading.existing)))}",
        )
    if reading.error == errno.ENOTDIR:
        return f"{reading.existing} is a file, not a folder.", f"mv {place} {place}.old"
    words = os.strerror(reading.error)
    if reading.owner == reading.user:
        return f"No file can be written there ({words}).", f"chmod u+rwx {place}"
    return (
        f"No file can be written there ({words}): it belongs to user {reading.owner}, and this is "
        f"user {reading.user}.",
        f"sudo chown -R {reading.user} {place}",
    )


def _mount_point(path: Path) -> Path:
    while not os.path.ismount(path):
        path = path.parent
    return path
