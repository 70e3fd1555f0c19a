"""A node's files: blobs named by the SHA-256 of their content, under a quota.

Several agents may share one directory. Nothing is ever locked: a blob is written to a private file
and renamed into place once its hash agrees, so whoever sees a blob sees all of it; which blobs an
agent needs is written to a private file too, where the others see it before they evict. What a
killed agent leaves behind is recognised by its name (`nodes.owner`) and removed at the next start.

Layout of the root: `blobs/DIGEST`, `derived/ENTRY` (what executors make from blobs), `partial/`,
`pins/`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from nodes.core.errors import NodeError
from nodes.core.messages import BlobInfo
from nodes.owner import is_stale, private_name

MAX_PARTIAL = 16
"""Blobs that may be half-written at a time."""

MAX_FILES = 1 << 14
"""Blobs and derived files that are kept at most: a disk is as full of small files as of bytes."""

MAX_PINNED = 1 << 15
"""Blobs that one agent may keep from eviction; a deployment has at most 8192."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class CacheError(NodeError):
    """A blob cannot be stored or found: which, why, and what to do."""


@dataclass
class _Partial:
    """A blob of which `offset` bytes have come."""

    path: Path
    file: BinaryIO
    offset: int = 0
    hashed: Any = field(default_factory=sha256)

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class BlobStore:
    """Blobs under `root/blobs`, derived files under `root/derived`, together at most `quota_bytes`.

    Pinned blobs are not evicted; of the others the least recently used go first. Used from one
    thread at a time.
    """

    def __init__(self, root: Path, quota_bytes: int) -> None:
        """Create the directories and clear away what dead agents left.

        Raises CacheError if the directory cannot be used.
        """
        self._root = root
        self._quota_bytes = quota_bytes
        self._blobs, self._derived = root / "blobs", root / "derived"
        self._partial_dir, self._pin_dir = root / "partial", root / "pins"
        self._partials: dict[str, _Partial] = {}
        self._pinned: set[str] = set()
        with self._disk_errors():
            self._make_folders()
            for left in (*self._partial_dir.iterdir(), *self._pin_dir.iterdir()):
                if is_stale(left):
                    left.unlink(missing_ok=True)
            self._pins = self._pin_dir / private_name("pins")
            self._evict_to(self._quota_bytes)

    def _make_folders(self) -> None:
        for folder in (self._blobs, self._derived, self._partial_dir, self._pin_dir):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def derived(self) -> Path:
        """The directory for files made from blobs (pass it to `registry.open_executor`)."""
        return self._derived

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Those of `digests` that are not here, in order, without repeats.

        Those that are here count as just used. Raises CacheError for what is no digest, or if the
        disk fails.
        """
        paths = {digest: self._blob_path(digest) for digest in digests}
        with self._disk_errors():
            return tuple(digest for digest, path in paths.items() if not _touch(path))

    def write(self, blob: BlobInfo, offset_bytes: int, data: bytes) -> bool:
        """Append a chunk; True once the blob is complete and its hash agrees.

        A blob that is here already answers True at once. Offset 0 starts anew. Raises CacheError,
        and forgets what came before, if the chunk does not continue the blob, exceeds it, the hash
        is wrong, or there is no room under the quota or on the disk.
        """
        target = self._blob_path(blob.digest)
        try:
            with self._disk_errors(f"blob {blob.digest}"):
                if _touch(target):
                    self._forget(blob.digest)
                    return True
                return self._append(blob, offset_bytes, data, target)
        except CacheError:
            self._forget(blob.digest)
            raise

    def _append(self, blob: BlobInfo, offset_bytes: int, data: bytes, target: Path) -> bool:
        if offset_bytes == 0:
            self._forget(blob.digest)
            self._partials[blob.digest] = self._begin(blob)
        partial = self._partials.get(blob.digest)
        come = partial.offset if partial else 0
        if partial is None or offset_bytes != come:
            raise CacheError(
                f"blob {blob.digest}: a chunk for byte {offset_bytes} came where byte {come} was "
                "due; send the blob again from its start"
            )
        if come + len(data) > blob.size_bytes:
            raise CacheError(
                f"blob {blob.digest}: {come + len(data)} bytes came of {blob.size_bytes}; "
                "its size was stated wrongly"
            )
        partial.file.write(data)
        partial.hashed.update(data)
        partial.offset += len(data)
        if partial.offset < blob.size_bytes:
            return False
        if partial.hashed.hexdigest() != blob.digest:
            raise CacheError(
                f"blob {blob.digest}: what came has the SHA-256 {partial.hashed.hexdigest()}; "
                "it was damaged on the way or at its source, send it again"
            )
        partial.file.flush()
        os.fsync(partial.file.fileno())
        partial.file.close()
        partial.path.rename(target)
        del self._partials[blob.digest]
        return True

    def _begin(self, blob: BlobInfo) -> _Partial:
        if len(self._partials) >= MAX_PARTIAL:
            raise CacheError(
                f"blob {blob.digest}: {MAX_PARTIAL} blobs are half-written already; finish those"
            )
        if not 0 <= blob.size_bytes <= self._quota_bytes:
            raise CacheError(
                f"blob {blob.digest}: its {blob.size_bytes} bytes exceed the quota of this node's "
                f"cache, {self._quota_bytes}; raise the quota"
            )
        kept, files = self._evict_to(self._quota_bytes - blob.size_bytes, MAX_FILES - 1)
        if files >= MAX_FILES:
            raise CacheError(
                f"blob {blob.digest}: {files} files of the cache under {self._root} are in use, "
                "and more are not kept; deploy fewer subnets"
            )
        if kept + blob.size_bytes > self._quota_bytes:
            raise CacheError(
                f"blob {blob.digest}: {kept} bytes of the cache under {self._root} are in use, and "
                f"{blob.size_bytes} more exceed its quota of {self._quota_bytes}; raise the quota"
            )
        path = self._partial_dir / private_name(blob.digest)
        partial = _Partial(path, path.open("wb"))
        if blob.size_bytes:
            try:
                os.posix_fallocate(partial.file.fileno(), 0, blob.size_bytes)
            except OSError:
                partial.discard()
                raise
        return partial

    def path(self, digest: str) -> Path:
        """Where a blob lies, which counts as a use; raises CacheError if it is not here."""
        path = self._blob_path(digest)
        with self._disk_errors(f"blob {digest}"):
            is_here = _touch(path)
        if not is_here:
            raise CacheError(f"blob {digest} is not in the cache under {self._root}; send it again")
        return path

    def pin(self, digests: Iterable[str]) -> None:
        """Keep these blobs, in addition to those pinned before, from eviction by any agent.

        They need not be here yet. A pin ends with `unpin` or with this process. Folders that
        somebody has removed are made again. Raises CacheError if these are too many.
        """
        added = set(digests)
        for digest in added:
            self._blob_path(digest)
        if len(self._pinned | added) > MAX_PINNED:
            raise CacheError(f"more than {MAX_PINNED} blobs would be in use; deploy fewer subnets")
        self._pinned |= added
        with self._disk_errors():
            self._make_folders()
            draft = self._partial_dir / private_name("pins")
            draft.write_text("\n".join(sorted(self._pinned)), "ascii")
            draft.rename(self._pins)

    def unpin(self) -> None:
        """Let every blob that this agent pinned be evicted again."""
        self._pinned.clear()
        with self._disk_errors():
            self._pins.unlink(missing_ok=True)
            self._evict_to(self._quota_bytes)

    def release(self) -> None:
        """Unpin, and forget blobs that are half-written."""
        for digest in tuple(self._partials):
            self._forget(digest)
        self.unpin()

    def _blob_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise CacheError(f"{digest[:80]!r} is no SHA-256 digest in 64 lower-case hex digits")
        return self._blobs / digest

    def _forget(self, digest: str) -> None:
        partial = self._partials.pop(digest, None)
        if partial:
            partial.discard()

    def _evict_to(self, limit_bytes: int, limit_files: int = MAX_FILES) -> tuple[int, int]:
        """Remove what was least recently used until no more than that remains, if possible.

        Returns the bytes and the files that remain.
        """
        entries = sorted(_entries(self._blobs, self._derived, self._partial_dir))
        total, files = sum(size for _, size, _ in entries), len(entries)
        if total <= limit_bytes and files <= limit_files:
            return total, files
        pinned = self._all_pinned()
        for _, size, path in entries:
            if total <= limit_bytes and files <= limit_files:
                break
            if path.parent == self._partial_dir or path.name in pinned or _is_partial(path):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
            total, files = total - size, files - 1
        return total, files

    def _all_pinned(self) -> set[str]:
        pinned = set(self._pinned)
        for path in self._pin_dir.iterdir():
            if not is_stale(path):
                with contextlib.suppress(OSError):
                    pinned.update(path.read_text("ascii").split())
        return pinned

    @contextmanager
    def _disk_errors(self, what: str = "the cache") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CacheError(
                f"{what} cannot be written under {self._root}: {error.strerror}; make room there "
                "or choose another cache directory"
            ) from error


def _touch(path: Path) -> bool:
    """Whether the file is there; if so, it has just been used."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:  # another user's: there, but its times are not ours to set
        return path.exists()
    return True


def _is_partial(path: Path) -> bool:
    """Whether an executor is still making this derived entry."""
    return path.name.startswith("partial.") and not is_stale(path)


def _entries(*folders: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use (mtime), bytes and path of everything that counts towards the quota."""
    for folder in folders:
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # another agent may have evicted it
                status = path.stat()
                size = status.st_size
                if path.is_dir():
                    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                yield status.st_mtime, size, path
