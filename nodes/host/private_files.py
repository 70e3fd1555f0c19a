"""Create files and folders that one process writes, and find those whose process has ended.

The creating process holds a `flock` on the file while it writes. The kernel releases the lock when
the process ends, however it ends. A process that can take the lock therefore has proof that the
creator has ended, whatever PID namespaces and clocks say. This holds within one kernel: a file
system that other machines may share need not pass locks on, so a file that was created there under
another boot, perhaps by another machine, is never deleted.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from nodes.host.owner import boot_id

_NAME = re.compile(r".+\.(?P<boot>[^.]+)\.[0-9a-f]{8}", re.DOTALL)

LOCAL_FILE_SYSTEMS = frozenset(
    (
        *(0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E),
        *(0x01021994, 0x858458F6, 0x794C7630, 0x24051905, 0x3153464A, 0x3434, 0x4D44, 0x2011BAB0),
    )
)
"""`f_type` of statfs(2): ext, XFS, Btrfs, F2FS, ZFS, bcachefs; tmpfs, ramfs, overlay, UBIFS, JFS,
NILFS, FAT, exFAT. Only one kernel mounts such a file system, so it has every lock on it."""


def private_name(name: str) -> str:
    """Return a unique name that begins with `name` and contains this kernel's boot id."""
    return f"{name}.{boot_id() or 'unknown'}.{uuid4().hex[:8]}"


class PrivateFile:
    """A file or folder under a unique name, locked until `close`.

    `make_file` and `make_folder` create them.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    def rename(self, target: Path) -> None:
        """Rename it atomically; may raise OSError."""
        self.path.rename(target)
        self.path = target

    def close(self) -> None:
        """Release the lock; the file stays. Idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def remove(self) -> None:
        """Delete the file if it still exists, and release the lock."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
        self.close()


def make_file(folder: Path, name: str) -> PrivateFile:
    """Create an empty file with mode 0600; may raise OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        path = folder / private_name(name)
        made = _locked(path, os.open(path, flags, 0o600))
        if made is not None:
            return made


def make_folder(folder: Path, name: str) -> PrivateFile:
    """Create an empty folder with mode 0700; may raise OSError."""
    while True:
        path = folder / private_name(name)
        path.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):  # another process deleted it before the lock
            made = _locked(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if made is not None:
                return made


@contextmanager
def left_behind(path: Path) -> Iterator[bool]:
    """Yield whether the creator of `path` has certainly ended.

    If so, the lock is held within the block, so that no other process deletes it.
    """
    descriptor = _open(path)
    try:
        yield descriptor is not None and _is_left(path, descriptor)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_left(path: Path, descriptor: int) -> bool:
    name = _NAME.fullmatch(path.name)
    return (
        name is not None
        and (name["boot"] == boot_id() or _is_local(descriptor))
        and _lock(descriptor) is True
        and _is_at(path, descriptor)
    )


def _locked(path: Path, descriptor: int) -> PrivateFile | None:
    """Return the new file, locked; None if another process took it for a leftover before that."""
    if _lock(descriptor) is False or not _is_at(path, descriptor):
        os.close(descriptor)
        return None
    return PrivateFile(path, descriptor)


def _lock(descriptor: int) -> bool | None:
    """Try to take the lock; return whether that worked, or None if there are no locks here."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        return False if error.errno == errno.EACCES else None
    return True


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        there, ours = path.lstat(), os.fstat(descriptor)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _open(path: Path) -> int | None:
    """Open a file or folder of another process; return None if that is impossible."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    for mode in (os.O_RDWR, os.O_RDONLY | os.O_DIRECTORY):
        with contextlib.suppress(OSError):
            return os.open(path, flags | mode)
    return None


def _is_local(descriptor: int) -> bool:
    """Return whether only this kernel mounts the file system."""
    found = (ctypes.c_long * 64)()  # struct statfs begins with f_type, a long
    try:
        if ctypes.CDLL(None).fstatfs(descriptor, found) != 0:
            return False
    except (OSError, AttributeError):
        return False
    return found[0] & 0xFFFFFFFF in LOCAL_FILE_SYSTEMS
