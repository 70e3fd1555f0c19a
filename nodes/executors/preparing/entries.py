"""Caches on disk what engines make from subnets: optimised models and TensorRT engines.

An entry is a directory named by its key. It contains the files and `entry.json` with their sizes
and CRC-32s. An entry is made in a private directory and renamed into place, so a reader sees all of
it or nothing. It is not flushed to the disk: an entry that a crash, a full disk or a bad card has
damaged fails its check and is made again. Several agents may share the directory: the first one to
rename an entry wins, and an agent may evict what another has just found. A key contains, between
dashes, the digest of the blob that its entry is made from; a pin of the blob keeps both from
eviction (`nodes.cache.room`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeAlias

from nodes.cache.room import (
    PARTIAL,
    FileIdentity,
    Room,
    clear_left_behind,
    delete_entry,
    identity_of,
)
from nodes.executors.base import ExecutorError
from nodes.host.private_files import make_folder

_ENTRY = "entry.json"
_CHUNK = 1 << 20

Optimisation: TypeAlias = Literal["full", "light", "off"]
_LESS: Mapping[Optimisation, Optimisation] = {"full": "light", "light": "off"}

_LEAST_FREE_BYTES = 1 << 20
"""A disk with less free space counts as full: no engine could write its model."""

_IS_THERE = (errno.ENOTEMPTY, errno.EEXIST)
_ATTEMPTS = 8
"""Attempts to rename an entry into place while other agents make and evict the same one."""


class NoRoomError(ExecutorError):
    """An entry takes more room than it may."""


@dataclass(frozen=True, slots=True)
class Job:
    """A subnet to prepare, and the key of the result.

    `optimisation` is `full`, `light` (with little memory, and without a layout of weights for this
    processor) or `off`. `source_bytes` is the size of its graph and weights. `target` is the
    processor for which an engine compiles it, in that engine's words; "" is this machine's.
    `in_blocks` are the inputs and outputs that are in blocks of channels (`LoadOptions.in_blocks`).
    """

    graph: Path
    subnet: str
    key: str
    optimisation: Optimisation = "full"
    source_bytes: int = 0
    target: str = ""
    in_blocks: Sequence[str] = ()

    @property
    def lighter(self) -> Job | None:
        """The same subnet optimised less, which takes less memory; None if there is no such way."""
        less = _LESS.get(self.optimisation)
        if less is None or not self.key.startswith("onnxruntime-"):
            return None
        key = f"{self.key.removesuffix(f'-{self.optimisation}')}-{less}"
        return replace(self, key=key, optimisation=less)

    @property
    def variants(self) -> Iterator[Job]:
        """This job, then the ones that optimise less and less."""
        job: Job | None = self
        while job is not None:
            yield job
            job = job.lighter

    @staticmethod
    def is_light_key(key: str) -> bool:
        """Return whether a key belongs to a job that is not optimised fully."""
        return key.endswith(tuple(f"-{less}" for less in _LESS.values()))

    @staticmethod
    def is_off_key(key: str) -> bool:
        """Return whether a key belongs to a job that is not optimised at all."""
        return key.endswith("-off")


def entry_key(engine: str, digest: str, *facts: object) -> str:
    """Return the key of what an engine makes from the subnet of this SHA-256 (hex).

    `facts` are everything else that the content depends on.
    """
    return f"{engine}-{digest}-{sha256(repr(facts).encode()).hexdigest()[:16]}"


class PreparedFiles:
    """The entries under the directory `root`.

    `room` is the cache directory that they belong to, if that is bounded. `limit_bytes` is the most
    that an entry made through this object may take. Raises ExecutorError if the directory cannot be
    used.
    """

    def __init__(self, root: Path, room: Room | None = None, limit_bytes: float = math.inf) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._verified: dict[str, tuple[FileIdentity, ...]] = {}
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
        """Return the directory of the entries."""
        return self._root

    def clear_leftovers(self) -> None:
        """Remove what processes that have ended left half-written; may raise OSError."""
        clear_left_behind(self._root.glob(f"{PARTIAL}.*"))

    def find(self, key: str) -> Path | None:
        """Return the directory of an intact entry and mark it as just used; None without one.

        A damaged entry is removed. The content of each entry is read once per instance, and again
        if it has been written to. Another agent may evict the entry at any moment.
        """
        entry = self._root / key
        try:
            found = entry.stat()
            file_ids = self._intact_files(entry, self._verified.get(key))
            with contextlib.suppress(OSError):  # another user's, or gone
                os.utime(entry)
            if not os.path.samestat(entry.stat(), found):
                return None
        except OSError:
            return None
        if file_ids is None:
            self._remove_damaged(key)
            return None
        self._verified[key] = file_ids
        return entry

    def _intact_files(
        self, entry: Path, verified: tuple[FileIdentity, ...] | None
    ) -> tuple[FileIdentity, ...] | None:
        """Return the ids of an entry's files; None if they are not what was written.

        Files whose ids are `verified` are not read.
        """
        try:
            content = json.loads((entry / _ENTRY).read_text("utf-8"))
            files = [(entry / name, size, crc) for name, (size, crc) in content["files"].items()]
            ids = []
            for path, size, _ in files:
                status = path.stat()
                if status.st_size != size:
                    return None
                ids.append(identity_of(status))
            file_ids = tuple(ids)
            if file_ids != verified and any(_crc32(path) != crc for path, _, crc in files):
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return file_ids

    def _remove_damaged(self, key: str) -> None:
        self.discard(key)
        if self.room is not None:
            self.room.count_damaged(key, "prepared again")

    def discard(self, key: str) -> None:
        """Remove an entry."""
        self._verified.pop(key, None)
        with contextlib.suppress(OSError):
            delete_entry(self._root / key)

    @contextmanager
    def making(self, key: str) -> Iterator[Path]:
        """Yield a private directory that becomes the entry `key` if the block ends without error.

        Raises ExecutorError if the disk is full or refuses, NoRoomError if the limit is reached.
        """
        try:
            made = make_folder(self._root, PARTIAL)
            try:
                yield made.path
                self._publish(made.path, key)
            except Exception as error:
                if self._is_too_large(made.path):
                    raise NoRoomError(
                        f"its prepared files take more than {self._limit_bytes / 1e6:.1f} MB"
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
        """Return whether the limit is reached.

        Engines do not report why they could not write, but no file can become longer than the
        limit.
        """
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
    return disk.f_bavail * disk.f_frsize < _LEAST_FREE_BYTES


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc
