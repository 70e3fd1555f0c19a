"""A node's files: blobs named by the SHA-256 of their content, under a quota."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nodes.core.errors import NodeError
from nodes.core.messages import BlobInfo


class CacheError(NodeError):
    """A blob cannot be stored or found: which, why, and what to do."""


class BlobStore:
    """Blobs under `root/blobs`, derived files under `root/derived`, together at most `quota_bytes`.

    Pinned blobs are not evicted. Several agents may share one root.
    """

    def __init__(self, root: Path, quota_bytes: int) -> None:
        """Create the directories; raises CacheError if that is impossible."""
        raise NotImplementedError

    @property
    def derived(self) -> Path:
        """The directory for files made from blobs (pass it to `registry.open_executor`)."""
        raise NotImplementedError

    def missing(self, digests: Iterable[str]) -> tuple[str, ...]:
        """Those of `digests` that are not here, in order, without repeats."""
        raise NotImplementedError

    def write(self, blob: BlobInfo, offset_bytes: int, data: bytes) -> bool:
        """Append a chunk; True once the blob is complete and its hash agrees.

        A blob that is here already answers True at once. Raises CacheError, and forgets what came
        before, if the chunk does not continue the blob, exceeds it, or the hash is wrong.
        """
        raise NotImplementedError

    def path(self, digest: str) -> Path:
        """Where a blob lies; raises CacheError if it is not here."""
        raise NotImplementedError

    def pin(self, digests: Iterable[str]) -> None:
        """Keep exactly these blobs (in addition to those pinned before) from eviction."""
        raise NotImplementedError

    def unpin(self) -> None:
        """Let every blob be evicted again."""
        raise NotImplementedError
