"""Reads and writes graphs in the format that the file's name tells: `.json`, otherwise SDF3 XML."""

from __future__ import annotations

from pathlib import Path

from csdf import json_format, sdf3, sdf3_writer
from csdf.graph import Graph


def read(path: str | Path, processor: str | None = None) -> Graph:
    """Raises `JsonError` or `Sdf3Error`; `processor` is as in `csdf.sdf3.parse`."""
    if Path(path).suffix.lower() == ".json":
        return json_format.read(path)
    return sdf3.read(path, processor)


def read_for_analysis(
    path: str | Path, processor: str | None = None
) -> tuple[Graph, tuple[str, ...]]:
    """The graph in a file, and the names of its actors without execution times.

    Those have times of 0 in the graph. Otherwise as `read`.
    """
    if Path(path).suffix.lower() == ".json":
        return json_format.read_for_analysis(path)
    return sdf3.read_for_analysis(path, processor)


def as_text(graph: Graph, path: str | Path) -> str:
    """What a file of that name is to hold. Raises `CsdfError`."""
    if Path(path).suffix.lower() == ".json":
        return json_format.write(graph)
    return sdf3_writer.write(graph)
