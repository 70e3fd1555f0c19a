"""Measurements of earlier times, kept under `$XDG_CACHE_HOME/csdf-edge-profiles`.

A node's are named by the digest of the model, of what the node is, and of nothing else: nodes that
are alike on one machine share them. A file that is damaged or of another format counts as missing.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from launcher.profile.file import FORMAT, NodeIdentity, NodeTimes, write_atomically
from launcher.small_files import read_small

Kept = TypeVar("Kept", bound=BaseModel)


class LinkTimes(BaseModel):
    """What a link was measured to be, whatever its ends are called."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    latency_s: float
    bytes_per_s: float | None


class ProfileCache:
    """The cache in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def node(self, model_digest: str, identity: NodeIdentity) -> NodeTimes | None:
        """What is known of a model on a node."""
        return self._read(NodeTimes, "node", model_digest, identity.model_dump_json())

    def keep_node(self, model_digest: str, identity: NodeIdentity, times: NodeTimes) -> None:
        """Keep what was measured of a model on a node."""
        key = ("node", model_digest, identity.model_dump_json())
        write_atomically(self._path(*key), times)

    def link(self, one: NodeIdentity, other: NodeIdentity) -> LinkTimes | None:
        """What is known of the link between two nodes."""
        return self._read(LinkTimes, "link", one.model_dump_json(), other.model_dump_json())

    def keep_link(self, one: NodeIdentity, other: NodeIdentity, times: LinkTimes) -> None:
        """Keep what the link between two nodes was measured to be."""
        key = ("link", one.model_dump_json(), other.model_dump_json())
        write_atomically(self._path(*key), times)

    def _read(self, kind: type[Kept], *key: str) -> Kept | None:
        try:
            return kind.model_validate_json(read_small(self._path(*key)))
        except (OSError, ValidationError):
            return None

    def _path(self, *key: str) -> Path:
        digest = hashlib.sha256("\n".join((str(FORMAT), *key)).encode()).hexdigest()
        return self._folder / f"{digest}.json"


def default_cache() -> ProfileCache:
    """The user's."""
    base = os.environ.get("XDG_CACHE_HOME")
    return ProfileCache((Path(base) if base else Path.home() / ".cache") / "csdf-edge-profiles")
