"""Bounds a cache directory: counts its files, reserves room, pins files, and evicts the others.

    ROOT/blobs/DIGEST     blobs, named by the SHA-256 of their content (`nodes.cache.blobs`)
    ROOT/derived/ENTRY    what executors made from blobs (`nodes.executors.preparing.entries`)
    ROOT/partial/         blobs that are half-written, and room that is reserved
    ROOT/pins/            what each agent needs, one name a line

Several agents, each with its own quota, may share the directory, and none waits for another: each
writes private files (`nodes.host.private_files`), renames them into place, and allows for files
that disappear between two of its calls. Where the cache is too full, the least recently used is
evicted first: blobs by their time of access, entries by their folder's time of change.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from nodes.host.private_files import PrivateFile, left_behind, make_file, private_name

MAX_FILES = 1 << 14
"""The most blobs and entries that are kept, because small files fill a disk as well."""

PARTIAL = "partial"
"""The prefix of an entry's folder while it is made; its bytes are those reserved for it."""

_PRIVATE_MODE = 0o700

log = logging.getLogger("node-agent")


FileIdentity: TypeAlias = tuple[int, int, int, int]
"""A file's device, inode, size and time of change: they change when it is written, not when it is
read."""


def identity_of(status: os.stat_result) -> FileIdentity:
    """Return the identity of a file with this status."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Kept:
    """The content of the cache after an eviction."""

    size_bytes: int
    files: int


class Room:
    """The cache directory `root`, which this agent keeps within `quota_bytes`.

    Methods raise OSError if the disk fails. They may be called from several threads.
    """

    def __init__(self, root: Path, quota_bytes: int) -> None:
        self.root, self.quota_bytes = root, quota_bytes
        self.blobs, self.derived = root / "blobs", root / "derived"
        self.partial, self._pin_folder = root / "partial", root / "pins"
        self.damaged = 0
        """Blobs and entries whose content had changed on the disk since they were written."""
        self.pinned: frozenset[str] = frozenset()
        self._pins: list[PrivateFile] = []

    def make_folders(self) -> None:
        """Make the folders that are missing; only their owner may read them."""
        self.root.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        for folder in (self.blobs, self.derived, self.partial, self._pin_folder):
            folder.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
            if stat.S_IMODE(folder.stat().st_mode) != _PRIVATE_MODE:
                folder.chmod(_PRIVATE_MODE)

    def count_damaged(self, what: str, remedy: str) -> None:
        """Count and log a file that the disk has damaged.

        `what` names it, `remedy` completes "it is removed and …".
        """
        self.damaged += 1
        log.warning(
            "%s in the cache under %s was damaged on disk: it is removed and %s; if this happens "
            "again, replace that disk or card",
            what, self.root, remedy,
        )  # fmt: skip

    # ------------------------------------------------------------ pins

    def pin(self, names: Iterable[str]) -> None:
        """Keep these blobs, and entries with one of their digests in their name, from eviction.

        Those pinned before stay pinned. Pins end with `unpin` or with this process.
        """
        pinned = self.pinned.union(names)
        self.make_folders()
        draft = make_file(self.partial, "pins")
        try:
            with open(draft.descriptor, "w", encoding="ascii", closefd=False) as file:
                file.write("\n".join(sorted(pinned)))
            draft.rename(self._pin_folder / draft.path.name)
        except OSError:
            draft.remove()
            raise
        self.pinned = pinned
        self._pins.append(draft)
        while len(self._pins) > 2:  # a reader that lists the folder now may miss the newest
            self._pins.pop(0).remove()

    def unpin(self) -> None:
        """Allow the eviction of everything that this agent has pinned."""
        self.pinned = frozenset()
        while self._pins:
            self._pins.pop().remove()

    def _is_pinned(self, name: str, pins: dict[str, frozenset[str]]) -> bool:
        """Return whether an agent has pinned this blob or entry.

        Reads files of pins that are not in `pins` yet, and adds them; such a file never changes.
        Call it right before each eviction, because other agents pin meanwhile.
        """
        parts = {name, *name.split("-")}
        for path in self._pin_folder.iterdir():
            if path.name not in pins:
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    pins[path.name] = frozenset(path.read_text("ascii").split())
        return not all(parts.isdisjoint(names) for names in (self.pinned, *pins.values()))

    def pinned_by_others_bytes(self) -> int:
        """Return the bytes of the blobs that other agents which still run have pinned."""
        own = {pins.path.name for pins in self._pins}
        names: set[str] = set()
        for path in self._pin_folder.iterdir():
            if path.name not in own:
                with left_behind(path) as is_left, contextlib.suppress(OSError, UnicodeDecodeError):
                    if not is_left:
                        names.update(path.read_text("ascii").split())
        sizes = 0
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it has not arrived yet
                sizes += (self.blobs / name).stat().st_size
        return sizes

    # ------------------------------------------------------------ room

    def now_ns(self) -> int:
        """Return the file system's time, in nanoseconds."""
        os.utime(self.blobs)
        return self.blobs.stat().st_mtime_ns

    def clear_leftovers(self) -> None:
        """Remove what processes that have ended were writing."""
        for folder in (self.partial, self._pin_folder):
            clear_left_behind(folder.iterdir())
        clear_left_behind(self.derived.glob(f"{PARTIAL}.*"))

    def evict_to(self, limit_bytes: int, limit_files: int = MAX_FILES) -> Kept:
        """Evict until no more than these limits remain, if possible; returns what remains.

        First removes what processes that have ended left, then what was least recently used.
        """
        entries = sorted(self._entries())
        total, files = sum(size for _, size, _ in entries), len(entries)
        if total <= limit_bytes and files <= limit_files:
            return Kept(total, files)
        self.clear_leftovers()
        entries = sorted(self._entries())
        total, files = sum(size for _, size, _ in entries), len(entries)
        pins: dict[str, frozenset[str]] = {}
        for _, size, path in entries:
            if total <= limit_bytes and files <= limit_files:
                break
            if path.parent != self.partial and not self._is_pinned(path.name, pins):
                _delete(path)
                total, files = total - size, files - 1
        return Kept(total, files)

    @contextmanager
    def reserve(self, size_bytes: int) -> Iterator[int]:
        """Reserve room for what the block writes, and yield the bytes that it may write.

        These are `size_bytes`, or fewer if there is less room. Two agents that reserve at once may
        both get less than there is, but never more.
        """
        size_bytes = min(size_bytes, self.quota_bytes)
        kept = self.evict_to(self.quota_bytes - size_bytes, MAX_FILES - 1)
        granted = max(0, min(size_bytes, self.quota_bytes - kept.size_bytes))
        if kept.files >= MAX_FILES:
            granted = 0
        claim = make_file(self.partial, "reserved")
        try:
            os.ftruncate(claim.descriptor, granted)  # takes no room on the disk, but counts
            excess = self.evict_to(self.quota_bytes).size_bytes - self.quota_bytes
            if excess > 0:
                granted = max(0, granted - excess)
                os.ftruncate(claim.descriptor, granted)
            yield granted
        finally:
            claim.remove()

    def _entries(self) -> Iterator[tuple[int, int, Path]]:
        """Yield the time of last use (ns), the bytes and the path of everything that counts."""
        for folder in (self.blobs, self.derived, self.partial):
            for path in folder.iterdir():
                if folder == self.derived and _is_unfinished(path):
                    continue  # its reservation counts instead
                with contextlib.suppress(OSError):  # another agent may have evicted it
                    status = path.stat()
                    if stat.S_ISDIR(status.st_mode):
                        files = [file.stat() for file in path.rglob("*") if file.is_file()]
                        size = sum(file.st_size for file in files)
                        yield status.st_mtime_ns, size, path
                    else:
                        yield status.st_atime_ns, status.st_size, path


def _is_unfinished(entry: Path) -> bool:
    return entry.name.startswith(f"{PARTIAL}.")


def clear_left_behind(paths: Iterable[Path]) -> None:
    """Remove those of these private files and folders whose processes have ended."""
    for path in paths:
        with left_behind(path) as is_left:
            if is_left:
                _delete(path)


def delete_entry(entry: Path) -> None:
    """Remove an entry; a reader finds all of it or nothing at any moment."""
    gone = entry.with_name(private_name(PARTIAL))
    with contextlib.suppress(FileNotFoundError):
        entry.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _delete(path: Path) -> None:
    """Remove a file or a folder, which may have disappeared."""
    if path.is_dir() and not path.is_symlink():
        delete_entry(path)
    else:
        path.unlink(missing_ok=True)
