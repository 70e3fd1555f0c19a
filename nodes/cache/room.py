"""What a cache directory holds, and its bound: blobs, what was made from them, what is under way.

    ROOT/blobs/DIGEST     named by the SHA-256 of their content (`nodes.cache.blobs`)
    ROOT/derived/ENTRY    what executors made from them (`nodes.executors.prepared`)
    ROOT/partial/         blobs that are half-written, and room that is reserved
    ROOT/pins/            what each agent needs: one name a line

Several agents, with quotas of their own, may share the directory, and none can keep another
waiting: each writes private files (`nodes.host.private_files`), renames them, and expects that what
it has just seen may be gone. Where the cache is too full, the least recently used goes first: blobs
by their time of access, entries by their folder's time of change.
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

from nodes.host.private_files import PrivateFile, left_behind, make_file, private_name

MAX_FILES = 1 << 14
"""Blobs and entries that are kept at most: a disk is as full of small files as of bytes."""

PARTIAL = "partial"
"""What the folder of an entry is called while it is made; its bytes are those reserved for it."""

_PRIVATE_MODE = 0o700

log = logging.getLogger("node-agent")


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left in the cache."""

    size_bytes: int
    files: int


class Room:
    """The directory `root`, of which this agent lets no more than `quota_bytes` be used.

    Methods raise OSError as the disk does. They may be called from several threads.
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
        """Make what is missing of them; nobody but their owner can look into them."""
        self.root.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        for folder in (self.blobs, self.derived, self.partial, self._pin_folder):
            folder.mkdir(mode=_PRIVATE_MODE, exist_ok=True)
            if stat.S_IMODE(folder.stat().st_mode) != _PRIVATE_MODE:
                folder.chmod(_PRIVATE_MODE)

    def count_damaged(self, what: str, remedy: str) -> None:
        """Note that the disk has changed something."""
        self.damaged += 1
        log.warning(
            "%s in the cache under %s is not what was written: it is removed and %s; if this "
            "happens again, replace that disk or card",
            what, self.root, remedy,
        )  # fmt: skip

    # ------------------------------------------------------------ pins

    def pin(self, names: Iterable[str]) -> None:
        """Keep these blobs, and entries with one of these in their name, from every eviction.

        In addition to those pinned before, until `unpin` or the end of this process.
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
        while len(self._pins) > 2:  # who lists the folder just now may miss the newest
            self._pins.pop(0).remove()

    def unpin(self) -> None:
        """Let everything that this agent pinned be evicted again."""
        self.pinned = frozenset()
        while self._pins:
            self._pins.pop().remove()

    def _is_pinned(self, name: str, pins: dict[str, frozenset[str]]) -> bool:
        """Whether an agent needs it; looks for pins that are not among those in `pins` yet.

        Asked anew about everything that is about to go, because others pin meanwhile. A file of
        pins is never written to again.
        """
        parts = {name, *name.split("-")}
        for path in self._pin_folder.iterdir():
            if path.name not in pins:
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    pins[path.name] = frozenset(path.read_text("ascii").split())
        return not all(parts.isdisjoint(names) for names in (self.pinned, *pins.values()))

    # ------------------------------------------------------------ room

    def now_ns(self) -> int:
        """The time that the file system gives to what is used now."""
        os.utime(self.blobs)
        return self.blobs.stat().st_mtime_ns

    def clear_leftovers(self) -> None:
        """Remove what processes that are gone were writing."""
        for folder in (self.partial, self._pin_folder):
            clear_left_behind(folder.iterdir())
        clear_left_behind(self.derived.glob(f"{PARTIAL}.*"))

    def evict_to(self, limit_bytes: int, limit_files: int = MAX_FILES) -> Kept:
        """Remove what was left behind, and then what was least recently used, until no more than
        that remains, if possible."""
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
        """Keep so much free for what is written within the block, or as much as can be had.

        The number of bytes that may be written. Two agents that reserve at once may both get less
        than there is, but never more.
        """
        size_bytes = min(size_bytes, self.quota_bytes)
        kept = self.evict_to(self.quota_bytes - size_bytes, MAX_FILES - 1)
        granted = max(0, min(size_bytes, self.quota_bytes - kept.size_bytes))
        if kept.files >= MAX_FILES:
            granted = 0
        claim = make_file(self.partial, "reserved")
        try:
            os.ftruncate(claim.descriptor, granted)  # takes no room itself, but is counted
            excess = self.evict_to(self.quota_bytes).size_bytes - self.quota_bytes
            if excess > 0:
                granted = max(0, granted - excess)
                os.ftruncate(claim.descriptor, granted)
            yield granted
        finally:
            claim.remove()

    def _entries(self) -> Iterator[tuple[int, int, Path]]:
        """Last use, bytes and path of everything that counts."""
        for folder in (self.blobs, self.derived, self.partial):
            for path in folder.iterdir():
                if folder == self.derived and _is_unfinished(path):
                    continue  # its bytes are those of a reservation
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
    """Remove those of these private files and folders whose makers are gone."""
    for path in paths:
        with left_behind(path) as is_left:
            if is_left:
                _delete(path)


def delete_entry(entry: Path) -> None:
    """Remove an entry; whoever looks for it at any moment finds all of it or nothing."""
    gone = entry.with_name(private_name(PARTIAL))
    with contextlib.suppress(FileNotFoundError):
        entry.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _delete(path: Path) -> None:
    """Remove a file or a folder, which may be gone."""
    if path.is_dir() and not path.is_symlink():
        delete_entry(path)
    else:
        path.unlink(missing_ok=True)
