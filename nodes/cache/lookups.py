"""Which blobs an agent lacks, answered without keeping its sockets waiting.

Blobs that this process has not read yet must be read first, which takes seconds where there are
many. A thread does that, which exists only meanwhile. Answers come in the order of the questions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock, Thread

from nodes.cache.blobs import BlobStore, CacheError
from nodes.core import events as ev

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
