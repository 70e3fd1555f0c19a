"""Read and write graph files: JSON if the name ends in `.json`, otherwise SDF3 XML."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from csdf.formats import json_format, sdf3
from csdf.model.graph import Graph


def read(path: str | Path, processor: str | None = None) -> Graph:
    """Return the graph in a file; `processor` is as in `csdf.formats.sdf3.parse`.

    Raises `JsonError` or `Sdf3Error`.
    """
    if Path(path).suffix.lower() == ".json":
        return json_format.read(path)
    return sdf3.read(path, processor)


def read_for_analysis(
    path: str | Path, processor: str | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph in a file, and the names of its actors without execution times.

    Those have times of 0 in the graph. Otherwise as `read`.
    """
    if Path(path).suffix.lower() == ".json":
        return json_format.read_for_analysis(path)
    return sdf3.read_for_analysis(path, processor)


def as_text(graph: Graph, path: str | Path) -> str:
    """Return the text of a file of that name. Raises `CsdfError`."""
    if Path(path).suffix.lower() == ".json":
        return json_format.write(graph)
    return sdf3.write(graph)


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears under its name once it is complete; raises `OSError`.

    What is no regular file (`/dev/stdout`) is written to as it is.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, "utf-8")
        return
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
