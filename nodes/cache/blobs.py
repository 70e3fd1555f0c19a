"""A node's blobs: files named by the SHA-256 of their content, under a quota.

A blob is written to a private file and renamed into place once its hash agrees, so whoever sees a
blob sees all of it. What lies on a disk may change there, by a fault of the card or by hand: before
a blob is used its content is hashed again, once per process as long as the file stays the one that
was hashed. What is damaged is removed and then missing like any other. Not covered: pages that are
read from the disk again later on, while an engine has the file mapped.

Where things lie, and who may evict what, is in `nodes.cache.room`.

Which blobs an agent lacks, answered without keeping its sockets waiting.

Blobs that this process has not read yet must be read first, which takes seconds where there are
many. A thread does that, which exists only meanwhile. Answers come in the order of the questions.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from nodes.cache.room import MAX_FILES, Room
from nodes.core import events as ev
from nodes.host.private_files import PrivateFile, make_file
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import BlobInfo

MAX_PARTIAL = 16
"""Blobs that may be half-written at a time."""

MAX_PINNED = 1 << 15
"""Blobs that one agent may keep from eviction; a deployment has at most 8192."""

LOOK_UP_S = 4.0
"""How long `missing` may read; launchers that recover from a loss wait for its answer."""

_CHUNK_BYTES = 1 << 18
_TOO_LATE = "too late"

_DIGEST = re.compile(r"[0-9a-f]{64}")


class CacheError(NodeError):
    """A blob cannot be stored or found: which, why, and what to do."""


@dataclass
class _Partial:
    """A blob of which `offset` bytes have come."""

    file: PrivateFile
    offset: int = 0
    hashed: Any = field(default_factory=sha256)


@dataclass(frozen=True, slots=True)
class _Identity:
    """Differs when a file has been written to; not when it has been used."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Identity:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class BlobStore:
    """Blobs under `root/blobs`; with what is made from them at most `quota_bytes`.

    Pinned blobs are not evicted; of the others the least recently used go first. Used from one
    thread at a time, but for `missing` and `verify`, which another may call meanwhile.
    """

    def __init__(self, root: Path, quota_bytes: int) -> None:
        """Create the directories and clear away what dead agents left.

        Raises CacheError if the directory cannot be used.
        """
        self._root = root
        self._quota_bytes = quota_bytes
        self.room = Room(root, quota_bytes)
        """Shared with the executor, whose files count towards the same quota."""
        self._partials: dict[str, _Partial] = {}
        self._verified: dict[str, _Identity] = {}
        with self._disk_errors():
            self.room.make_folders()
            self.room.clear_leftovers()
            self.room.evict_to(quota_bytes)

    @property
    def derived(self) -> Path:
        """The directory for files made from blobs (pass it to `registry.open_executor`)."""
        return self.room.derived

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Those of `digests` that are not here or are damaged, in order, without repeats.

        Those that are here count as just used. After `LOOK_UP_S` seconds of reading, what was not
        read yet counts as here, until `verify`. Raises CacheError for what is no digest, or if the
        disk fails.
        """
        paths = {digest: self._blob_path(digest) for digest in digests}
        until_s = time.monotonic() + LOOK_UP_S
        with self._disk_errors():
            now_ns = self.room.now_ns() if paths else 0
            return tuple(
                digest
                for digest, path in paths.items()
                if not _touch(path, now_ns) or not self._is_intact(digest, path, until_s)
            )

    def has_unread(self, digests: Iterable[str]) -> bool:
        """Whether one of these is here and must be read before it is used."""
        with self._disk_errors():
            return any(self._is_unread(digest, self._blob_path(digest)) for digest in digests)

    def verify(self, digests: Iterable[str]) -> None:
        """Read those whose content this process does not know yet.

        Raises CacheError if one is missing or damaged.
        """
        for digest in digests:
            path = self._blob_path(digest)
            with self._disk_errors(f"blob {digest}"):
                is_intact = self._is_intact(digest, path)
            if not is_intact:
                raise CacheError(
                    f"blob {digest} is not in the cache under {self._root}, or was damaged there "
                    "and is removed; launch again, and it is sent again"
                )

    def _remember(self, digest: str, identity: _Identity) -> None:
        if len(self._verified) >= MAX_PINNED:  # of which most must have been evicted
            self._verified.clear()
        self._verified[digest] = identity

    def _is_unread(self, digest: str, path: Path) -> bool:
        try:
            return _Identity.of(path.stat()) != self._verified.get(digest)
        except FileNotFoundError:
            return False

    def _is_intact(self, digest: str, path: Path, until_s: float = math.inf) -> bool:
        """Whether it is here with the content that its name promises, as far as that is seen in
        time; with another content it is removed."""
        try:
            identity = _Identity.of(path.stat())
            if identity == self._verified.get(digest):
                return True
            found = _sha256(path, until_s)
            if found == digest:
                self._remember(digest, identity)
            if found in (digest, _TOO_LATE):
                return True
            if _Identity.of(path.stat()) == identity:  # else somebody has replaced it meanwhile
                path.unlink()
                self.room.count_damaged(f"blob {digest}", "sent again")
        except FileNotFoundError:
            pass
        return False

    def write(self, blob: BlobInfo, offset_bytes: int, data: bytes) -> bool:
        """Append a chunk; True once the blob is complete and its hash agrees.

        A blob that is here already answers True at once. Offset 0 starts anew. Raises CacheError,
        and forgets what came before, if the chunk does not continue the blob, exceeds it, the hash
        is wrong, or there is no room under the quota or on the disk.
        """
        target = self._blob_path(blob.digest)
        try:
            with self._disk_errors(f"blob {blob.digest}"):
                if _touch(target, self.room.now_ns()):
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
        _write_all(partial.file.descriptor, data)
        partial.hashed.update(data)
        partial.offset += len(data)
        if partial.offset < blob.size_bytes:
            return False
        if partial.hashed.hexdigest() != blob.digest:
            raise CacheError(
                f"blob {blob.digest}: what came has the SHA-256 {partial.hashed.hexdigest()}; "
                "it was damaged on the way or at its source, send it again"
            )
        os.fsync(partial.file.descriptor)
        identity = _Identity.of(os.fstat(partial.file.descriptor))
        partial.file.rename(target)
        partial.file.close()
        self._remember(blob.digest, identity)
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
        kept = self.room.evict_to(self._quota_bytes - blob.size_bytes, MAX_FILES - 1)
        if kept.files >= MAX_FILES:
            raise CacheError(
                f"blob {blob.digest}: {kept.files} files of the cache under {self._root} are in "
                "use, and more are not kept; deploy fewer subnets"
            )
        if kept.size_bytes + blob.size_bytes > self._quota_bytes:
            raise self._full(blob, kept.size_bytes)
        partial = _Partial(make_file(self.room.partial, blob.digest))
        try:
            if blob.size_bytes:
                os.posix_fallocate(partial.file.descriptor, 0, blob.size_bytes)
            kept = self.room.evict_to(self._quota_bytes)  # another agent may have begun one too
            if kept.size_bytes > self._quota_bytes:
                raise self._full(blob, kept.size_bytes - blob.size_bytes)
        except BaseException:
            partial.file.remove()
            raise
        return partial

    def _full(self, blob: BlobInfo, used_bytes: int) -> CacheError:
        return CacheError(
            f"blob {blob.digest}: {used_bytes} bytes of the cache under {self._root} are in use, "
            f"and {blob.size_bytes} more exceed its quota of {self._quota_bytes}; raise the quota"
        )

    def path(self, digest: str) -> Path:
        """Where a blob lies, which counts as a use; raises CacheError if it is not here."""
        path = self._blob_path(digest)
        with self._disk_errors(f"blob {digest}"):
            is_here = _touch(path, self.room.now_ns())
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
        if len(self.room.pinned | added) > MAX_PINNED:
            raise CacheError(f"more than {MAX_PINNED} blobs would be in use; deploy fewer subnets")
        with self._disk_errors():
            self.room.pin(added)

    def unpin(self) -> None:
        """Let every blob that this agent pinned be evicted again."""
        with self._disk_errors():
            self.room.unpin()
            self.room.evict_to(self._quota_bytes)

    def release(self) -> None:
        """Unpin, and forget blobs that are half-written."""
        for digest in tuple(self._partials):
            self._forget(digest)
        self.unpin()

    def _blob_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise CacheError(f"{digest[:80]!r} is no SHA-256 digest in 64 lower-case hex digits")
        return self.room.blobs / digest

    def _forget(self, digest: str) -> None:
        partial = self._partials.pop(digest, None)
        if partial:
            partial.file.remove()

    @contextmanager
    def _disk_errors(self, what: str = "the cache") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CacheError(
                f"{what} cannot be written under {self._root}: {error.strerror}; make room there "
                "or choose another cache directory"
            ) from error


def _touch(path: Path, now_ns: int) -> bool:
    """Whether the file is there; if so, it has just been used. Its time of change stays as it is,
    by which `_Identity` knows whether somebody has written to it."""
    try:
        os.utime(path, ns=(now_ns, path.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's: there, but its times are not ours to set
        return True
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sha256(path: Path, until_s: float) -> str:
    """What the file's content hashes to; nothing where the disk cannot read it any more."""
    hashed = sha256()
    with path.open("rb", buffering=0) as file:
        try:
            while chunk := file.read(_CHUNK_BYTES):
                if time.monotonic() > until_s:
                    return _TOO_LATE
                hashed.update(chunk)
        except OSError:
            return ""
    return hashed.hexdigest()


MOST_WAITING = 64
"""Questions that may wait; a launcher has one at a time."""


class Lookups:
    """`report` is called from the thread with every answer that `ask` did not give itself."""

    def __init__(self, store: BlobStore, report: Callable[[ev.Event], None]) -> None:
        self._store = store
        self._report = report
        self._lock = Lock()
        self._waiting: deque[tuple[bytes, tuple[str, ...]]] = deque()
        self._is_reading = False

    def ask(self, peer: bytes, digests: tuple[str, ...]) -> ev.LookedUp | ev.ChunkFailed | None:
        """Pin these blobs and find out which are missing; None if the answer will be reported."""
        try:
            self._store.pin(digests)
            with self._lock:
                if not self._is_reading and not self._store.has_unread(digests):
                    return self._answer(peer, digests)
                if len(self._waiting) >= MOST_WAITING:
                    return ev.ChunkFailed(peer, "too many questions at once about what is missing")
                self._waiting.append((peer, digests))
                if not self._is_reading:
                    self._is_reading = True
                    Thread(target=self._read, name="lookups", daemon=True).start()
        except CacheError as error:
            return ev.ChunkFailed(peer, str(error))
        return None

    def _read(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_reading = False
                    return
                peer, digests = self._waiting.popleft()
            self._report(self._answer(peer, digests))

    def _answer(self, peer: bytes, digests: tuple[str, ...]) -> ev.LookedUp | ev.ChunkFailed:
        try:
            return ev.LookedUp(peer, self._store.missing(digests))
        except CacheError as error:
            return ev.ChunkFailed(peer, str(error))
