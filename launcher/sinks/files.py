"""Writes files of sinks, tells passing faults of a disk from lasting ones, and deletes old files.

A bound holds at every moment: room is made before something is written.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from launcher.config.ends.sink import ResultRefusedError, SinkConfig, SinkLostError
from launcher.config.kinds import FileName
from launcher.config.units import Bytes
from launcher.errors import LauncherError, RunFailedError
from launcher.files import cannot_write, check_folder, whole_file

_FOR_EVER = (
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)
"""Errors that no later attempt can avoid. Room on a disk, a mount or a server may come back."""

UNBOUNDED = 1 << 62
"""More bytes and files than any disk has."""

MOST_FRAMES_KEPT = 100_000
"""The most frames that are kept if only another bound is given; each takes some memory."""

OWNER = ".csdf-edge-sink"
"""The file by which a sink knows a folder in which it may delete files; it is locked meanwhile."""


def write_error(path: Path, error: OSError) -> LauncherError:
    """Return the error of a sink that cannot write `path`."""
    sentence = f"{error.filename or path}: {cannot_write(error)}"
    kind = RunFailedError if error.errno in _FOR_EVER else SinkLostError
    return kind(sentence)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn every `OSError` within into the error of a sink that cannot write `path`."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of `data`; the system may take it in parts."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def own_folder(folder: Path) -> int:
    """Lock a folder in which files are deleted; return the descriptor that holds the lock.

    Raises `RunFailedError` if it has files that are not a sink's, or if another run uses it.
    """
    owner = folder / OWNER
    if not owner.exists() and next(folder.iterdir(), None) is not None:
        raise RunFailedError(
            f"{folder}: has files that no sink has written, and keep_… deletes files; name a new "
            "or empty folder"
        )
    descriptor = os.open(owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise RunFailedError(f"{folder}: another run writes to it; name another") from None
    return descriptor


@dataclass
class NumberedFiles:
    """Files that end in a rising number, such as `results.000007.jsonl`; the lowest are deleted.

    All methods raise `OSError` as the disk does.
    """

    folder: Path
    before: str
    """The part of their names before the number."""
    after: str
    most_files: int = UNBOUNDED
    most_bytes: int = UNBOUNDED
    _bytes: dict[int, int] = field(default_factory=dict)
    """Number → bytes, the oldest first."""
    _total_bytes: int = 0

    def find(self) -> None:
        """Find the existing files."""
        name = re.compile(rf"{re.escape(self.before)}(\d{{6,9}}){re.escape(self.after)}")
        found = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                match = name.fullmatch(entry.name)
                if match is not None and entry.is_file(follow_symlinks=False):
                    found[int(match[1])] = entry.stat().st_size
        self._bytes = dict(sorted(found.items()))
        self._total_bytes = sum(found.values())

    def next_number(self) -> int:
        """The number of the next file, which no other has had."""
        return max(self._bytes, default=0) + 1

    def path(self, number: int) -> Path:
        """The path of the file with a number."""
        return self.folder / f"{self.before}{number:06d}{self.after}"

    def add(self, number: int, size_bytes: int) -> None:
        """Note that a file is complete."""
        self._bytes[number] = size_bytes
        self._total_bytes += size_bytes

    def make_room(self, more_bytes: int) -> None:
        """Delete the oldest files until there are few enough, and room for `more_bytes`."""
        while self._bytes and (
            len(self._bytes) > self.most_files or self._total_bytes + more_bytes > self.most_bytes
        ):
            oldest = next(iter(self._bytes))
            self.path(oldest).unlink(missing_ok=True)
            self._total_bytes -= self._bytes.pop(oldest)


class FrameFilesConfig(SinkConfig):
    """The keys of sinks that write files for each frame."""

    path: Annotated[FileName, Field(description="Folder that the files are written to")]
    keep_frames: Annotated[
        int | None,
        Field(
            ge=1,
            le=1_000_000,
            description="Number of frames whose files are kept; the oldest are deleted",
        ),
    ] = None
    keep_bytes: Annotated[
        Bytes, Field(description="Maximum size of all files together: 10GB; the oldest are deleted")
    ] = None
    keep_s: Annotated[
        float | None,
        Field(
            gt=0,
            description="Seconds after which a frame's files are deleted, once a newer "
            "frame has arrived",
        ),
    ] = None

    def bound(self) -> FrameBound | None:
        """The bound of the files; None if all of them are kept."""
        if self.keep_frames is None and self.keep_bytes is None and self.keep_s is None:
            return None
        return FrameBound(
            self.keep_frames or MOST_FRAMES_KEPT,
            self.keep_bytes or UNBOUNDED,
            self.keep_s or math.inf,
        )


@dataclass(frozen=True, slots=True)
class FrameBound:
    """How many frames, how many bytes, and for how many seconds a folder keeps."""

    most_frames: int
    most_bytes: int
    most_age_s: float


@dataclass(slots=True)
class _KeptFrame:
    taken_s: float
    sizes: dict[str, int]
    """Name of each file → its bytes."""


class FrameFolder:
    """A folder with files of many frames, whose names begin with the frame's number.

    With a bound, files are deleted; the folder must be new or empty then, or one that a sink has
    made. A file's time of modification is when its frame was taken, by which the next run knows its
    age. A run that gives frames the same numbers overwrites the files of the one before.
    """

    def __init__(self, folder: Path, bound: FrameBound | None) -> None:
        """Raises `BadInputError` if the folder can be neither used nor made; it is not made yet."""
        check_folder(folder)
        self.folder = folder
        self._bound = bound
        self._owner: int | None = None
        self._frames: dict[int, _KeptFrame] = {}
        """The frames that have files, the oldest first; only with a bound."""
        self._bytes = 0
        self._is_open = False

    def write(
        self, index: int, taken_s: float, files: Mapping[str, Sequence[bytes | memoryview]]
    ) -> None:
        """Write a frame's files, each of which is whole or absent.

        Raises as `Sink.write`.
        """
        size = sum(len(part) for parts in files.values() for part in parts)
        if self._bound is not None and size > self._bound.most_bytes:
            raise ResultRefusedError(
                f"frame {index}: its files have {size} bytes, more than keep_bytes: "
                f"{self._bound.most_bytes}"
            )
        with writing(self.folder):
            self._open()
            try:
                self._make_room(index, size, taken_s)
                for name, parts in files.items():
                    self._write_file(index, taken_s, name, parts)
            except FileNotFoundError:  # another process deleted the folder
                self.close()
                raise

    def _write_file(
        self, index: int, taken_s: float, name: str, parts: Sequence[bytes | memoryview]
    ) -> None:
        with whole_file(self.folder / name) as file:
            for part in parts:
                file.write(part)
        if self._bound is None:
            return
        with suppress(ValueError, OverflowError):  # a time that no file can have
            os.utime(self.folder / name, (taken_s, taken_s))
        kept = self._frames.setdefault(index, _KeptFrame(taken_s, {}))
        kept.sizes[name] = sum(map(len, parts))
        self._bytes += kept.sizes[name]

    def _open(self) -> None:
        if self._is_open:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._bound is not None:
            self._owner = own_folder(self.folder)
            self._find()
        self._is_open = True

    def _find(self) -> None:
        """Find the frames that have files, and delete incomplete ones of a crash."""
        found: dict[int, _KeptFrame] = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if _DRAFT.fullmatch(entry.name):
                    os.unlink(entry.path)
                elif match := _FILE.match(entry.name):
                    about = entry.stat(follow_symlinks=False)
                    kept = found.setdefault(int(match[1]), _KeptFrame(about.st_mtime, {}))
                    kept.sizes[entry.name] = about.st_size
        oldest_first = sorted(found.items(), key=lambda item: (item[1].taken_s, item[0]))
        self._frames = dict(oldest_first)
        self._bytes = sum(size for kept in found.values() for size in kept.sizes.values())

    def _make_room(self, index: int, more_bytes: int, now_s: float) -> None:
        bound = self._bound
        if bound is None:
            return
        if index in self._frames:
            self._delete(index)
        while self._frames:
            oldest = next(iter(self._frames))
            if (
                len(self._frames) < bound.most_frames
                and self._bytes + more_bytes <= bound.most_bytes
                and not now_s - self._frames[oldest].taken_s > bound.most_age_s
            ):
                return
            self._delete(oldest)

    def _delete(self, index: int) -> None:
        kept = self._frames[index]
        for name in list(kept.sizes):
            (self.folder / name).unlink(missing_ok=True)
            self._bytes -= kept.sizes.pop(name)
        del self._frames[index]

    def close(self) -> None:
        """Unlock the folder; every file is complete already."""
        self._is_open = False
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


_FILE = re.compile(r"(\d{6,18})[.-]")
_DRAFT = re.compile(r"\.\d{6,18}[.-].*\.\d+")
