"""Stores a node's blobs, files named by the SHA-256 of their content, and finds which are missing.

A blob is written to a private file and renamed into place once its hash agrees, so a reader sees
all of it or nothing. A file may change on the disk, by a fault of the card or by hand. So a blob is
hashed again before it is used, once per process as long as the file is the one that was hashed. A
damaged blob is removed, and is then missing like any other. Pages that the system reads from the
disk again later, while an engine has the file mapped, are not checked.

`nodes.cache.room` has the layout of the directory and the rules of eviction.
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

from nodes.cache.room import MAX_FILES, FileIdentity, Room, identity_of
from nodes.core import events as ev
from nodes.host.private_files import PrivateFile, make_file
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import BlobInfo, Missing

MAX_PARTIAL = 16
"""The most blobs that may be half-written at a time."""

MAX_PINNED = 1 << 15
"""The most blobs that one agent may keep from eviction; a deployment has at most 8192."""

LOOK_UP_S = 4.0
"""The longest that `missing` reads; launchers that recover from a loss wait for its answer."""

MOST_WAITING = 64
"""The most requests that may wait; a launcher sends one at a time."""

_CHUNK_BYTES = 1 << 18
_TOO_LATE = "too late"

_DIGEST = re.compile(r"[0-9a-f]{64}")


class CacheError(NodeError):
    """A blob cannot be stored or found: which, why, and what to do."""


@dataclass
class _Partial:
    """A blob of which `offset` bytes have arrived."""

    file: PrivateFile
    offset: int = 0
    hashed: Any = field(default_factory=sha256)


class BlobStore:
    """The blobs under `root/blobs`, at most `quota_bytes` with what is made from them.

    Pinned blobs are not evicted; of the others, the least recently used go first. One thread at a
    time may use a store, but another one may call `missing` and `verify` meanwhile.
    """

    def __init__(self, root: Path, quota_bytes: int) -> None:
        """Create the directories, and remove what agents left that have ended.

        Raises CacheError if the directory cannot be used.
        """
        self._root = root
        self._quota_bytes = quota_bytes
        self.room = Room(root, quota_bytes)
        """Shared with the executor, whose files count towards the same quota."""
        self._partials: dict[str, _Partial] = {}
        self._verified: dict[str, FileIdentity] = {}
        with self._disk_errors():
            self.room.make_folders()
            self.room.clear_leftovers()
            self.room.evict_to(quota_bytes)

    @property
    def derived(self) -> Path:
        """Return the directory for files made from blobs, as `registry.open_executor` takes it."""
        return self.room.derived

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Return those of `digests` that are absent or damaged, in order, without repetitions.

        The others are marked as just used. Blobs that are not read within `LOOK_UP_S` seconds count
        as intact, until `verify`. Raises CacheError if one is not a digest, or if the disk fails.
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
        """Return whether one of these is present and must be read before it is used."""
        with self._disk_errors():
            return any(self._is_unread(digest, self._blob_path(digest)) for digest in digests)

    def verify(self, digests: Iterable[str]) -> None:
        """Read those blobs that this process has not read yet.

        Raises CacheError if one is missing or damaged.
        """
        for digest in digests:
            path = self._blob_path(digest)
            with self._disk_errors(f"blob {digest}"):
                is_intact = self._is_intact(digest, path)
            if not is_intact:
                raise CacheError(
                    f"blob {digest} is missing from the cache under {self._root}, or was damaged "
                    "and has been removed; launch again to send it again"
                )

    def _remember(self, digest: str, identity: FileIdentity) -> None:
        if len(self._verified) >= MAX_PINNED:  # most of these have been evicted
            self._verified.clear()
        self._verified[digest] = identity

    def _is_unread(self, digest: str, path: Path) -> bool:
        try:
            return identity_of(path.stat()) != self._verified.get(digest)
        except FileNotFoundError:
            return False

    def _is_intact(self, digest: str, path: Path, until_s: float = math.inf) -> bool:
        """Return whether a blob is present and intact; remove it if it is damaged.

        Also returns True if it could not be read by `until_s`.
        """
        try:
            identity = identity_of(path.stat())
            if identity == self._verified.get(digest):
                return True
            found = _sha256(path, until_s)
            if found == digest:
                self._remember(digest, identity)
            if found in (digest, _TOO_LATE):
                return True
            if identity_of(path.stat()) == identity:  # else it was replaced meanwhile
                path.unlink()
                self.room.count_damaged(f"blob {digest}", "sent again")
        except FileNotFoundError:
            pass
        return False

    def write(self, blob: BlobInfo, offset_bytes: int, data: bytes) -> bool:
        """Append a chunk; True once the blob is complete and its hash agrees.

        True at once for a blob that is present already. Offset 0 starts a blob again. Raises
        CacheError, and discards the blob's earlier chunks, if the chunk does not continue the blob
        or exceeds it, if the hash is wrong, or if there is no room under the quota or on the disk.
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
        received = partial.offset if partial else 0
        if partial is None or offset_bytes != received:
            raise CacheError(
                f"blob {blob.digest}: a chunk for byte {offset_bytes} arrived instead of byte "
                f"{received}; send the blob again from its start"
            )
        if received + len(data) > blob.size_bytes:
            raise CacheError(
                f"blob {blob.digest}: {received + len(data)} bytes arrived, more than its "
                f"declared size of {blob.size_bytes}; declare the right size"
            )
        _write_all(partial.file.descriptor, data)
        partial.hashed.update(data)
        partial.offset += len(data)
        if partial.offset < blob.size_bytes:
            return False
        if partial.hashed.hexdigest() != blob.digest:
            raise CacheError(
                f"blob {blob.digest}: the received bytes have the SHA-256 "
                f"{partial.hashed.hexdigest()}; the blob was damaged on the way or at its source, "
                "send it again"
            )
        os.fsync(partial.file.descriptor)
        identity = identity_of(os.fstat(partial.file.descriptor))
        partial.file.rename(target)
        partial.file.close()
        self._remember(blob.digest, identity)
        del self._partials[blob.digest]
        return True

    def _begin(self, blob: BlobInfo) -> _Partial:
        if len(self._partials) >= MAX_PARTIAL:
            raise CacheError(
                f"blob {blob.digest}: {MAX_PARTIAL} other blobs are partly received; complete "
                "those first"
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
                "use, as many as it can keep; deploy fewer subnets"
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
        """Return a blob's path and mark it as just used; raises CacheError if it is absent."""
        path = self._blob_path(digest)
        with self._disk_errors(f"blob {digest}"):
            is_here = _touch(path, self.room.now_ns())
        if not is_here:
            raise CacheError(
                f"blob {digest} is missing from the cache under {self._root}; send it again"
            )
        return path

    def pin(self, digests: Iterable[str]) -> None:
        """Keep these blobs, in addition to those pinned before, from eviction by any agent.

        They need not be present yet. A pin ends with `unpin` or with this process. Folders that
        were removed are made again. Raises CacheError if these are too many.
        """
        added = set(digests)
        for digest in added:
            self._blob_path(digest)
        if len(self.room.pinned | added) > MAX_PINNED:
            raise CacheError(f"more than {MAX_PINNED} blobs would be in use; deploy fewer subnets")
        with self._disk_errors():
            self.room.pin(added)

    def pinned_by_others_bytes(self) -> int:
        """Return the bytes of the blobs that other agents which still run have pinned."""
        with self._disk_errors():
            return self.room.pinned_by_others_bytes()

    def unpin(self) -> None:
        """Allow the eviction of every blob that this agent has pinned."""
        with self._disk_errors():
            self.room.unpin()
            self.room.evict_to(self._quota_bytes)

    def release(self) -> None:
        """Unpin all blobs, and discard those that are half-written."""
        for digest in tuple(self._partials):
            self._forget(digest)
        self.unpin()

    def _blob_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise CacheError(f"{digest[:80]!r} is not a SHA-256 digest of 64 lower-case hex digits")
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
    """Return whether the file exists; if so, mark it as just used.

    Its time of change stays as it is, because its identity depends on it.
    """
    try:
        os.utime(path, ns=(now_ns, path.stat().st_mtime_ns))
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's file, whose times this one may not set
        return True
    return True


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sha256(path: Path, until_s: float) -> str:
    """Return the SHA-256 (hex) of the file's content; "" if the disk cannot read it."""
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


class Lookups:
    """Finds missing blobs without keeping the agent's sockets waiting.

    Blobs that this process has not read yet must be read first, which takes seconds where there are
    many. A thread does that, and ends when no request is left. It calls `report` with every result
    that `look_up` did not return itself, in the order of the requests.
    """

    def __init__(self, store: BlobStore, report: Callable[[ev.Event], None]) -> None:
        self._store = store
        self._report = report
        self._lock = Lock()
        self._waiting: deque[tuple[bytes, tuple[str, ...]]] = deque()
        self._is_reading = False

    def look_up(self, peer: bytes, digests: tuple[str, ...]) -> ev.Answered | ev.ChunkFailed | None:
        """Pin these blobs and find those that are missing; None if the result will be reported."""
        try:
            self._store.pin(digests)
            with self._lock:
                if not self._is_reading and not self._store.has_unread(digests):
                    return self._answer(peer, digests)
                if len(self._waiting) >= MOST_WAITING:
                    return ev.ChunkFailed(peer, "too many simultaneous queries for missing blobs")
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

    def _answer(self, peer: bytes, digests: tuple[str, ...]) -> ev.Answered | ev.ChunkFailed:
        try:
            return ev.Answered(peer, Missing(self._store.missing(digests)))
        except CacheError as error:
            return ev.ChunkFailed(peer, str(error))
        except Exception as error:  # noqa: BLE001 - later requests wait for the thread that asks
            return ev.ChunkFailed(peer, f"{type(error).__name__}: {error}")
