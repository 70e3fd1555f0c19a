"""Opens the source that `cluster.yaml` or `--input` names."""

from __future__ import annotations

from pathlib import Path

from launcher.config.ends.source import Source
from launcher.config.network import InputConfig
from launcher.errors import BadInputError


def open_source(config: InputConfig, folder: Path, where: str) -> Source:
    """Return the source, not connected yet; its relative paths begin at `folder`.

    Raises `BadInputError`, whose message begins with `where`, if it can never be used.
    """
    if config.source is None:
        raise BadInputError(f"{where}: names files, not a source")
    try:
        return config.source.open(folder)
    except BadInputError as error:
        raise BadInputError(f"{where}: {error}") from error
