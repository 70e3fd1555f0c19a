"""What engines made from subnets, kept on disk: optimised models, TensorRT engines.

An entry is a directory named by its key, with its files and `entry.json`, which holds their sizes
and CRC-32s. It is made in a private directory and renamed into place, so a reader sees all of it or
nothing; what a crash, a full disk or a bad card has damaged nevertheless fails its check and is
made anew, so nobody waits for the disk. Several agents may share the directory: whoever renames
first wins, and what one has just found another may evict. A key names, between dashes, the blob
that its entry is made from, which keeps both from eviction (`nodes.cache.room`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from nodes.cache.room import PARTIAL, Room, clear_left_behind, delete_entry
from nodes.executors.base import ExecutorError
from nodes.host.private_files import make_folder

_ENTRY = "entry.json"
_CHUNK = 1 << 20
_LIGHT = "-light"

_LITTLE_BYTES = 1 << 20
"""A disk that has no more is full, as far as engines and their models go."""

_IS_THERE = (errno.ENOTEMPTY, errno.EEXIST)
_ATTEMPTS = 8
"""At renaming an entry into place, where others make and evict the same one at the same time."""

_Look: TypeAlias = tuple[tuple[int, ...], ...]
"""What differs, for each file of an entry, when it has been written to."""


class NoRoomError(ExecutorError):
    """An entry takes more than it may."""


@dataclass(frozen=True, slots=True)
class Job:
    """A subnet to prepare, and the key that the result gets; `is_light`: with little memory.

    `source_bytes` are those of its graph and weights.
    """

    graph: Path
    subnet: str
    key: str
    is_light: bool = False
    source_bytes: int = 0

    @property
    def lighter(self) -> Job | None:
        """The same, prepared with less memory; None if there is no such way."""
        if self.is_light or not self.key.startswith("onnxruntime-"):
            return None
        return replace(self, key=self.key + _LIGHT, is_light=True)

    @staticmethod
    def is_of_light(key: str) -> bool:
        """Whether a key is that of a light job."""
        return key.endswith(_LIGHT)


class PreparedFiles:
    """The entries under one directory, of `room` if it is bounded.

    An entry that is made here takes `limit_bytes` at most.
    """

    def __init__(self, root: Path, room: Room | None = None, limit_bytes: float = math.inf) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._verified: dict[str, _Look] = {}
        self.room = room
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.clear_leftovers()
        except OSError as error:
            raise ExecutorError(
                f"the cache directory {root} cannot be used: {error.strerror}"
            ) from error

    @property
    def root(self) -> Path:
        """Where the entries lie."""
        return self._root

    def clear_leftovers(self) -> None:
        """Remove what processes that are gone have left half-written; may raise OSError."""
        clear_left_behind(self._root.glob(f"{PARTIAL}.*"))

    def find(self, key: str) -> Path | None:
        """The directory of an entry whose files are as they were made, marked as just used.

        A damaged entry is removed and not found. Content is read once per instance, and again if
        somebody has written to it. Another agent may evict the entry at any moment.
        """
        entry = self._root / key
        try:
            found = entry.stat()
            look = self._intact_look(entry, self._verified.get(key))
            with contextlib.suppress(OSError):  # another user's, or gone
                os.utime(entry)
            if not os.path.samestat(entry.stat(), found):
                return None
        except OSError:
            return None
        if look is None:
            self._remove_damaged(key)
            return None
        self._verified[key] = look
        return entry

    def _intact_look(self, entry: Path, verified: _Look | None) -> _Look | None:
        """How the files of an entry look; None if they are not what was written."""
        try:
            content = json.loads((entry / _ENTRY).read_text("utf-8"))
            files = [(entry / name, size, crc) for name, (size, crc) in content["files"].items()]
            looks = []
            for path, size, _ in files:
                status = path.stat()
                if status.st_size != size:
                    return None
                looks.append((status.st_dev, status.st_ino, status.st_mtime_ns))
            look = tuple(looks)
            if look != verified and any(_crc32(path) != crc for path, _, crc in files):
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return look

    def _remove_damaged(self, key: str) -> None:
        self.discard(key)
        if self.room is not None:
            self.room.count_damaged(key, "made anew")

    def discard(self, key: str) -> None:
        """Remove an entry."""
        self._verified.pop(key, None)
        with contextlib.suppress(OSError):
            delete_entry(self._root / key)

    @contextmanager
    def making(self, key: str) -> Iterator[Path]:
        """A private directory that becomes the entry `key` when the block ends well.

        Raises ExecutorError if the disk is full or refuses, `NoRoomError` if the limit is reached.
        """
        try:
            made = make_folder(self._root, PARTIAL)
            try:
                yield made.path
                self._publish(made.path, key)
            except Exception as error:
                if self._is_too_large(made.path):
                    raise NoRoomError(
                        f"what is prepared of it takes more than {self._limit_bytes / 1e6:.1f} MB"
                    ) from error
                if _is_full(self._root):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
                raise
            finally:
                delete_entry(made.path)
                made.close()
        except OSError as error:
            raise ExecutorError(
                f"a prepared subnet cannot be written under {self._root}: {error.strerror}; "
                "make room or choose another cache directory"
            ) from error

    def _is_too_large(self, folder: Path) -> bool:
        """Engines do not say why they could not write; but no file can outgrow the limit."""
        sizes = [path.stat().st_size for path in folder.iterdir()]
        return sum(sizes) > self._limit_bytes or max(sizes, default=0) >= self._limit_bytes

    def _publish(self, folder: Path, key: str) -> None:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        for path in paths:
            path.chmod(0o600)
        files = {path.name: (path.stat().st_size, _crc32(path)) for path in paths}
        descriptor = os.open(folder / _ENTRY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            json.dump({"files": files}, file)
        if self._is_too_large(folder):
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        for attempt in range(_ATTEMPTS):
            try:
                folder.rename(self._root / key)
            except OSError as error:
                if error.errno not in _IS_THERE or attempt == _ATTEMPTS - 1:
                    raise
                if self.find(key) is None:  # it was damaged, or has just been evicted
                    continue
            return


def _is_full(folder: Path) -> bool:
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize < _LITTLE_BYTES


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc
