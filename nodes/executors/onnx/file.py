"""What a node must know of an ONNX file without the `onnx` package: its name and its weight files.

An engine reads whatever file a model names, so an agent looks through every model before its engine
does: whole, by the table of `onnx_schema`. Files with weights lie beside the model, under a plain
name, and are no links. Operators are ONNX's own, and those of ONNX Runtime's that networks may have
(`onnx_operators`); in what its optimiser has written there are more of them.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.operators import CONTRIB_DOMAIN, CONTRIB_OPERATORS
from nodes.executors.onnx.protobuf import text_field
from nodes.executors.onnx.schema import (
    NODE,
    NODE_DOMAIN,
    NODE_NAME,
    NODE_OPERATOR,
    NODE_OUTPUT,
    TENSOR,
    NotAllowedError,
    external_entries,
    graph_name,
    walk,
)
from nodes.protocol.fields import printable

_STANDARD_DOMAINS = frozenset({"", "ai.onnx"})
_WRITTEN_DOMAINS = frozenset({CONTRIB_DOMAIN, "com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""Further domains of what ONNX Runtime's optimiser has written for the CPU."""

_COMPILED = frozenset({"EPContext"})
"""Operators that are programs compiled for some engine, which would run them unseen."""

_PLACE = re.compile(r"[0-9]{1,18}")
_PREPACKED = re.compile(r"prepacked_[0-9]{1,9}")
"""Where ONNX Runtime's optimiser notes what a kernel has laid out anew in the same file."""

_DIGEST_LENGTH = 64
_HASH_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """An ONNX file: its graph's name, the files that hold its weights, the digest of all of it, and
    its first layer that has an operator of ONNX Runtime's own ("" if none has)."""

    path: Path
    name: str
    external: tuple[Path, ...]
    digest: str
    contrib_layer: str = ""


def inspect(path: Path) -> OnnxFile:
    """Look through an ONNX file as a launcher sends it, and hash it with its weight files
    (SHA-256, hex).

    A weight file whose name is a SHA-256 is taken at its word: the blob store has checked it.
    Raises ExecutorError if the file is missing or no ONNX, names a weight file that is missing,
    shorter than it says or not simply a file beside it, or has what no launcher sends: operators
    that are neither ONNX's own nor in `onnx_operators`, functions, compiled programs, external
    weights of a body.
    """
    content = _mapped(path)
    name, weights, contrib_layer = _looked_through(content, path, is_written=False)
    hashed = sha256(content)
    for file in weights:
        if not _is_digest(file.name):
            hashed.update(_hash_file(file))
    return OnnxFile(path, name, weights, hashed.hexdigest(), contrib_layer)


def check_written(path: Path) -> None:
    """Look through what ONNX Runtime's optimiser has written, since others may share the folder.

    Raises ExecutorError as `inspect` does.
    """
    _looked_through(_mapped(path), path, is_written=True)


def _mapped(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ExecutorError(f"{path} is empty; send the subnet again")
            # Closed when nothing refers to it: an error's traceback may still do.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be read: {error.strerror}") from error


def _looked_through(
    content: mmap.mmap, path: Path, *, is_written: bool
) -> tuple[str, tuple[Path, ...], str]:
    """The name of the graph, the files with weights, the first layer of ONNX Runtime's own."""
    contrib_layer = ""
    ends: dict[str, int] = {}
    name: str | None = None
    try:
        with memoryview(content) as model:
            called = graph_name(model)
            name = None if called is None else printable(called)
            for kind, message, bodies in walk(model):
                if kind == NODE:
                    found = _check_operator(message, is_written=is_written)
                    contrib_layer = contrib_layer or found
                elif kind == TENSOR and (entries := external_entries(message)) is not None:
                    if bodies and not is_written:
                        raise NotAllowedError(
                            "weights in another file for a graph inside of a node"
                        )
                    location, end = _place(entries, is_written=is_written)
                    ends[location] = max(end, ends.get(location, 0))
    except NotAllowedError as error:
        raise ExecutorError(f"{_called(name, path)} is refused: it has {error}") from None
    except (ValueError, IndexError):  # text that is none, too
        name = None
    if name is None:
        raise ExecutorError(f"{path} is not an ONNX file or is truncated; send the subnet again")
    subject = _called(name, path)
    weights = tuple(_checked(path.parent / file, ends[file], subject) for file in sorted(ends))
    return name or path.name, weights, printable(contrib_layer)


def _called(name: str | None, path: Path) -> str:
    return f"subnet {name} ({path})" if name else str(path)


def _check_operator(node: memoryview, *, is_written: bool) -> str:
    """How messages call a layer that has an operator of ONNX Runtime's own; "" for others."""
    operator, domain = text_field(node, NODE_OPERATOR) or "", text_field(node, NODE_DOMAIN) or ""
    name = text_field(node, NODE_NAME) or text_field(node, NODE_OUTPUT) or ""
    if operator in _COMPILED:
        raise NotAllowedError(
            f"layer {name!r}, whose operator {operator} is a compiled program, which is never run "
            "here"
        )
    if domain in _STANDARD_DOMAINS:
        return ""
    is_contrib = domain == CONTRIB_DOMAIN and operator in CONTRIB_OPERATORS
    if not is_contrib and not (is_written and domain in _WRITTEN_DOMAINS):
        raise NotAllowedError(
            f"layer {name!r} ({operator}) of the domain {domain!r}; only ONNX's own operators and "
            "some of ONNX Runtime's run here"
        )
    return f"{name!r} ({operator})"


def _place(entries: list[tuple[str, str]], *, is_written: bool) -> tuple[str, int]:
    """The file that a tensor's content lies in, and where in it the content ends, if it says so."""
    place: dict[str, str] = {}
    for key, value in entries:
        known = key in ("location", "offset", "length", "checksum")
        if not known and not (is_written and _PREPACKED.fullmatch(key)):
            raise NotAllowedError(f"weights in another file, of which it says {key!r}")
        if key in place:
            raise NotAllowedError(f"weights in another file, of which it says {key!r} twice")
        place[key] = value
    location = place.get("location", "")
    if location in ("", ".", "..") or "/" in location or not location.isprintable():
        raise NotAllowedError(
            f"weights outside its own directory, in {location!r}; they may lie beside it only, "
            "under a plain name"
        )
    offset, length = (place.get(key) or "0" for key in ("offset", "length"))
    if not (_PLACE.fullmatch(offset) and _PLACE.fullmatch(length)):
        raise NotAllowedError(f"weights at no place of a file: offset {offset!r}, {length!r} bytes")
    return location, int(offset) + int(length)


def _checked(path: Path, end: int, subject: str) -> Path:
    """`path` itself if it is a file and no link, and has as many bytes."""
    try:
        status = path.lstat()
    except OSError:  # or the name is too long
        raise ExecutorError(
            f"the weights of {subject} are missing: {path}; send the subnet again"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise ExecutorError(
            f"{subject} refers to weights outside its own directory: {path} is no file but a link, "
            "a folder or a device"
        )
    if status.st_size < end:
        raise ExecutorError(
            f"the weights of {subject} are truncated: it needs {end} bytes of {path}, which has "
            f"{status.st_size}; send the subnet again"
        )
    return path


def _is_digest(name: str) -> bool:
    return len(name) == _DIGEST_LENGTH and set(name) <= set("0123456789abcdef")


def _hash_file(path: Path) -> bytes:
    hashed = sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                hashed.update(chunk)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be read: {error.strerror}") from error
    return hashed.digest()
