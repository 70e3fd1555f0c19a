"""Reads and writes graphs in the format that the file's name tells: `.json`, otherwise SDF3 XML."""

from __future__ import annotations

from pathlib import Path

from csdf import json_format, sdf3, sdf3_writer
from csdf.graph import Graph
from csdf.initial_phases import InitialPhases


def read(path: str | Path, processor: str | None = None) -> Graph:
    """Raises `JsonError` or `Sdf3Error`; `processor` is as in `csdf.sdf3.parse`."""
    if Path(path).suffix.lower() == ".json":
        return json_format.read(path)
    return sdf3.read(path, processor)


def read_for_analysis(
    path: str | Path, processor: str | None = None
) -> tuple[Graph, InitialPhases, tuple[str, ...]]:
    """Like `read`, of a file that may have initial phases and actors without execution times.

    The names of the latter come third; they have times of 0 in the graph.
    """
    if Path(path).suffix.lower() == ".json":
        graph, untimed = json_format.read_for_analysis(path)
        return graph, InitialPhases({}, {}, {}), untimed
    return sdf3.read_for_analysis(path, processor)


def as_text(graph: Graph, path: str | Path) -> str:
    """What a file of that name is to hold. Raises `CsdfError`."""
    if Path(path).suffix.lower() == ".json":
        return json_format.write(graph)
    return sdf3_writer.write(graph)
