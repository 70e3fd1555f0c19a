"""Read and write graph files: JSON if the name ends in `.json`, otherwise SDF3 XML."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from csdf.errors import CsdfError
from csdf.formats import json_format, sdf3
from csdf.model.graph import Graph


def read(
    path: str | Path,
    processor: str | None = None,
    values: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """Return the graph in a file; `processor` is as in `csdf.formats.sdf3.parse`.

    `values` are those of the parameters of a graph in JSON. Raises `CsdfError`, whose message
    starts with the path.

    >>> graph = read("tests/fixtures/csdf_reference/twodev_2_3.xml")
    >>> len(graph.actors), len(graph.channels)
    (3, 7)
    """
    if Path(path).suffix.lower() == ".json":
        return json_format.read(path, values)
    _refuse_values(path, values)
    return sdf3.read(path, processor)


def _refuse_values(path: str | Path, values: Mapping[str, int]) -> None:
    if values:
        raise CsdfError(f"{path}: only graphs in JSON have parameters (--set)")


def read_for_analysis(
    path: str | Path,
    processor: str | None = None,
    values: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Graph, tuple[str, ...]]:
    """Return the graph in a file, and the names of its actors without execution times.

    In the graph, these actors have times of 0. Otherwise as `read`.
    """
    if Path(path).suffix.lower() == ".json":
        return json_format.read_for_analysis(path, values)
    _refuse_values(path, values)
    return sdf3.read_for_analysis(path, processor)


def read_for_binding(
    path: str | Path,
    processors: Mapping[str, str | None],
    usual: str | None = None,
    values: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Graph, Mapping[str, Mapping[str, tuple[Fraction, ...]]]]:
    """Return the graph in a file, and the times by processor of the actors that can run there.

    `processors` gives the type of each processor; None stands for one on which all actors have the
    times of `read` with `usual`. An actor with no time on a type cannot run there, and in the graph
    it has times of 0 if it has none on the first type. Raises as `read` does.
    """
    if None in processors.values():
        graph = read(path, usual, values)
        own = {actor.name: actor.execution_times for actor in graph.actors}
        return graph, dict.fromkeys(processors, own)
    if Path(path).suffix.lower() == ".json":
        raise CsdfError(f"{path}: graphs in JSON have no types of processors; name them P,Q")
    _refuse_values(path, values)
    found = {kind: sdf3.read_on(path, kind or "") for kind in processors.values()}
    graph = next(iter(found.values()))[0]
    return graph, {name: found[kind][1] for name, kind in processors.items()}


def as_text(graph: Graph, path: str | Path) -> str:
    """Return what `write` writes into a file of that name."""
    if Path(path).suffix.lower() == ".json":
        return json_format.write(graph)
    return sdf3.write(graph)


def write(graph: Graph, path: str | Path) -> None:
    """Write `graph` to a file, which appears under its name once it is complete.

    Raises `CsdfError` if the format cannot express a name, or the file cannot be written.

    >>> from fractions import Fraction
    >>> from tempfile import TemporaryDirectory
    >>> from csdf import Actor
    >>> graph = Graph("one", (Actor("a", (Fraction(1, 3),), concurrency=2),), ())
    >>> with TemporaryDirectory() as folder:
    ...     write(graph, f"{folder}/one.json")
    ...     read(f"{folder}/one.json") == graph
    True
    """
    try:
        write_whole(Path(path), as_text(graph, path))
    except OSError as error:
        raise CsdfError(f"{path} cannot be written: {error.strerror or error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears under its name once it is complete. Raises `OSError`.

    If `path` is not a regular file, as `/dev/stdout`, the text is written to it directly.
    """
    if path.exists() and not path.is_file():  # before links are resolved: a pipe has no other path
        path.write_text(text, "utf-8")
        return
    try:
        target = path.resolve()
    except RuntimeError:  # before Python 3.13, for links that lead to themselves
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
    draft = target.with_name(f".{target.name[:200]}.{os.getpid()}")
    try:
        draft.write_text(text, "utf-8")
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
