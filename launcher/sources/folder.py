"""The source `folder`: each image or array that is put into a watched folder is a frame.

The kernel says (inotify) when a file is moved into the folder or closed after writing, and when a
link to one is made there, so that the folder is not polled. It says so only for what programs on
this machine do: files that another machine puts into a folder of a network file system are not
noticed.

Files that exist at the start may still be written. One that cannot be read, or that changes while
it is read, is not taken then; it is read when it is closed.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from launcher.clock import now_s
from launcher.config.ends.source import (
    FrameRefusedError,
    Source,
    SourceConfig,
    SourceFrame,
    SourceLostError,
)
from launcher.config.kinds import FileName
from launcher.errors import BadInputError
from launcher.inputs.arrays import SUFFIXES as ARRAY_SUFFIXES
from launcher.inputs.arrays import read_arrays
from launcher.inputs.images import SUFFIXES as IMAGE_SUFFIXES
from launcher.inputs.images import read_pixels
from launcher.sources.interrupt import Interrupt
from nodes.protocol.payload import Array

After = Literal["keep", "delete", "move"]


class FolderConfig(SourceConfig):
    """A folder that is watched: a file that is moved in or closed after writing is a frame."""

    kind: ClassVar[str] = "folder"

    path: Annotated[FileName, Field(description="The folder")]
    existing: Annotated[
        bool,
        Field(description="Whether files that exist already are taken first, in order of name"),
    ] = True
    after: Annotated[
        After, Field(description="What to do with a file that was taken: keep, delete or move")
    ] = "keep"
    move_to: Annotated[
        FileName | None,
        Field(
            description="With after: move, the folder to which files are moved, on the same disk"
        ),
    ] = None

    @model_validator(mode="after")
    def _check_move(self) -> FolderConfig:
        if (self.after == "move") != (self.move_to is not None):
            raise ValueError("after: move and move_to belong together; give both or none")
        return self

    def open(self, folder: Path) -> Source:
        """See `SourceConfig`."""
        paths = self.paths(folder)
        watched, target = paths["path"], paths.get("move_to")
        if not watched.is_dir():
            raise BadInputError(f"there is no folder {str(watched)!r}; check the path")
        needed = os.R_OK | os.X_OK | (0 if self.after == "keep" else os.W_OK)
        if not os.access(watched, needed):
            raise BadInputError(
                f"the folder {str(watched)!r} may not be read or may not be changed"
            )
        if target is not None:
            if not target.is_dir():
                raise BadInputError(
                    f"there is no folder {str(target)!r}; make it, or check move_to"
                )
            if target.stat().st_dev != watched.stat().st_dev or target.samefile(watched):
                raise BadInputError(
                    f"files cannot be moved from {str(watched)!r} to {str(target)!r}; name another "
                    "folder on the same disk"
                )
        return FolderSource(watched, existing=self.existing, after=self.after, target=target)


_Identity = tuple[int, ...]
"""Figures of a file that change when it is written or replaced."""


class FolderSource:
    """Frames from the files of a folder; implements `launcher.config.ends.source.Source`."""

    is_live = False

    def __init__(self, folder: Path, *, existing: bool, after: After, target: Path | None) -> None:
        self.description = str(folder)
        self._folder, self._after, self._target = folder, after, target
        self._interrupt = Interrupt()
        self._taken: dict[str, _Identity] = {}
        self._unsettled: set[tuple[str, _Identity]] = set()
        self._settling = threading.Lock()
        if not existing:
            self._taken = dict(self._listed())

    def frames(self) -> Iterator[SourceFrame]:
        """See `Source`; the frames do not end before `close`."""
        with _Watch(self._folder) as watch:
            found = deque(name for name, _ in sorted(self._listed()))
            while not self._interrupt.is_set:
                if not found:
                    if self._interrupt.wait_for(watch.descriptor):
                        found.extend(self._changed(watch))
                    continue
                name = found.popleft()
                frame = self._read(name)
                if frame is not None:
                    yield frame

    def resume(self, former: Source) -> None:
        """See `ResumableSource`; files that came in the meantime are taken as well."""
        if isinstance(former, FolderSource):
            with former._settling:
                settled = former._taken.items() - former._unsettled
            self._taken = dict(settled)

    def close(self) -> None:
        """See `Source`."""
        self._interrupt.set()

    def _listed(self) -> Iterator[tuple[str, _Identity]]:
        """Find the files that were not taken yet; forget those that no longer exist."""
        try:
            names = [name for name in os.listdir(self._folder) if _is_frame(name)]
        except OSError as error:
            raise SourceLostError(f"{self.description}: {error.strerror}") from None
        self._taken = {name: self._taken[name] for name in names if name in self._taken}
        for name in names:
            identity = self._identity(name)
            if identity is not None and self._taken.get(name) != identity:
                yield name, identity

    def _changed(self, watch: _Watch) -> Iterator[str]:
        for event in watch.read():
            if event.is_lost:
                raise SourceLostError(f"{self.description}: the folder was moved or deleted")
            if event.is_overflow:
                yield from (name for name, _ in sorted(self._listed()))
            elif event.is_gone and self._identity(event.name) is None:
                self._taken.pop(event.name, None)
            elif event.is_new and not self._is_link(event.name):  # it is closed later
                continue
            elif not event.is_gone and _is_frame(event.name):
                yield event.name

    def _is_link(self, name: str) -> bool:
        """Whether a new name is that of a file that existed before."""
        try:
            about = os.lstat(self._folder / name)
        except OSError:
            return False
        return stat.S_ISLNK(about.st_mode) or about.st_nlink > 1

    def _identity(self, name: str) -> _Identity | None:
        try:
            about = os.stat(self._folder / name)
        except OSError:
            return None
        return about.st_ino, about.st_size, about.st_mtime_ns

    def _read(self, name: str) -> SourceFrame | None:
        """Return the frame; None if it was taken, no longer exists, or changes while it is read."""
        before = self._identity(name)
        if before is None or self._taken.get(name) == before:
            return None
        try:
            data = _content(self._folder / name)
        except BadInputError as error:
            if self._identity(name) != before:
                return None
            self._taken[name] = before
            raise FrameRefusedError(str(error)) from None
        if self._identity(name) != before:
            return None
        with self._settling:
            self._taken[name] = before
            self._unsettled.add((name, before))
        return SourceFrame(data, now_s(), name, settle=partial(self._settle, name, before))

    def _settle(self, name: str, identity: _Identity) -> None:
        """Do with a file what is due once its frame is settled, in any thread."""
        with self._settling:
            self._unsettled.discard((name, identity))
            if self._identity(name) == identity:  # else another file of that name has arrived
                self._put_away(name)

    def _put_away(self, name: str) -> None:
        path = self._folder / name
        try:
            if self._after == "delete":
                path.unlink()
            elif self._target is not None:
                path.rename(_free_name(self._target, name))
        except FileNotFoundError:  # another process has done it
            pass
        except OSError as error:
            raise BadInputError(f"{path}: cannot be moved or deleted: {error.strerror}") from None


def _is_frame(name: str) -> bool:
    suffix = os.path.splitext(name)[1].lower()
    return not name.startswith(".") and suffix in (*IMAGE_SUFFIXES, *ARRAY_SUFFIXES)


def _content(path: Path) -> Array | Mapping[str, Array]:
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return read_pixels(path)
    return read_arrays(path)


def _free_name(folder: Path, name: str) -> Path:
    """A name that no file of the folder has: NAME.png, or NAME-1.png and so on."""
    stem, suffix = os.path.splitext(name)
    path, number = folder / name, 0
    while os.path.lexists(path):
        number += 1
        path = folder / f"{stem}-{number}{suffix}"
    return path


# ---------------------------------------------------------------- inotify(7)

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _UNMOUNT, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_ONLYDIR, _ISDIR = 0x1000000, 0x40000000
_HEAD = struct.Struct("iIII")
_EVENTS_BYTES = 1 << 16


class _Event:
    """One event: its bits, and the name of its file."""

    def __init__(self, mask: int, name: str) -> None:
        self.name = name
        self.is_lost = bool(mask & (_DELETE_SELF | _MOVE_SELF | _UNMOUNT | _IGNORED))
        self.is_overflow = bool(mask & _OVERFLOW)
        self.is_gone = bool(mask & (_DELETE | _MOVED_FROM))
        self.is_new = bool(mask & _CREATE)


class _Watch:
    """The kernel's events of a folder; raises `SourceLostError` if it gives none."""

    def __init__(self, folder: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        wanted = _CLOSE_WRITE | _MOVED_TO | _MOVED_FROM | _CREATE | _DELETE
        wanted |= _DELETE_SELF | _MOVE_SELF
        if self.descriptor < 0 or (
            libc.inotify_add_watch(self.descriptor, os.fsencode(folder), wanted | _ONLYDIR) < 0
        ):
            why = os.strerror(ctypes.get_errno())
            self.__exit__()
            raise SourceLostError(f"{folder}: cannot be watched: {why}")

    def __enter__(self) -> _Watch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def read(self) -> Iterator[_Event]:
        """Yield the events that have arrived."""
        data, at = os.read(self.descriptor, _EVENTS_BYTES), 0
        while at < len(data):
            _, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
            at += length
            if not mask & _ISDIR or mask & (_DELETE_SELF | _MOVE_SELF):
                yield _Event(mask, name)
