"""What a node must know of an ONNX file without the `onnx` package: its name and its weight files.

An ONNX file is a protocol buffer (`ModelProto` of onnx.proto3). Only the path from the model to its
tensors is followed; everything else is skipped unread.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from nodes.executors.base import ExecutorError
from nodes.executors.protobuf import fields, submessages, text_field

# Field numbers of onnx.proto3.
_MODEL_GRAPH, _MODEL_FUNCTION = 7, 25
_GRAPH_NODE, _GRAPH_NAME, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 2, 5, 15
_FUNCTION_NODE = 7
_NODE_OPERATOR, _NODE_ATTRIBUTE = 4, 5
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS, _ATTRIBUTE_SPARSE = (5, 10), (6, 11), (22, 23)
_SPARSE_TENSORS = (1, 2)
_TENSOR_EXTERNAL_DATA = 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_COMPILED = frozenset({"EPContext"})
"""Operators that are programs compiled for some engine, which would run them unseen."""

_DIGEST_LENGTH = 64
_HASH_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class OnnxFile:
    """An ONNX file: its graph's name, the files that hold its weights, the digest of all of it."""

    path: Path
    name: str
    external: tuple[Path, ...]
    digest: str


def inspect(path: Path) -> OnnxFile:
    """Read an ONNX file's name and weight files, and hash it with them (SHA-256, hex).

    A weight file whose name is a SHA-256 is taken at its word: the blob store has checked it.
    Raises ExecutorError if the file is missing or no ONNX, names a weight file that is missing or
    lies outside the file's own directory, or has an operator that is a compiled program.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size == 0:
                raise ExecutorError(f"{path} is empty; send the subnet again")
            # Closed when nothing refers to it: an error's traceback may still do.
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        hashed = sha256(content)
        name, locations = _name_and_locations(memoryview(content), path)
    except OSError as error:
        raise ExecutorError(f"{path} cannot be read: {error.strerror}") from error
    external = tuple(_resolve(path, location) for location in sorted(locations))
    for file_path in external:
        if not _is_digest(file_path.name):
            hashed.update(_hash_file(file_path))
    return OnnxFile(path, name or path.name, external, hashed.hexdigest())


def _name_and_locations(content: memoryview, path: Path) -> tuple[str, set[str]]:
    name = ""
    locations: set[str] = set()
    found_graph = False
    try:
        with content:
            for number, value in fields(content):
                if number == _MODEL_GRAPH and isinstance(value, memoryview):
                    found_graph = True
                    name = text_field(value, _GRAPH_NAME) or name
                    locations.update(_locations(value))
                elif number == _MODEL_FUNCTION and isinstance(value, memoryview):
                    locations.update(_function_locations(value))
                if isinstance(value, memoryview):
                    value.release()
    except (ValueError, IndexError, UnicodeDecodeError):
        found_graph = False
    if not found_graph:
        raise ExecutorError(f"{path} is not an ONNX file or is truncated; send the subnet again")
    return name, locations


def _function_locations(function: memoryview) -> Iterator[str]:
    for number, value in submessages(function):
        if number == _FUNCTION_NODE:
            yield from _node_locations(value)


def _locations(graph: memoryview) -> Iterator[str]:
    for number, value in submessages(graph):
        if number == _GRAPH_NODE:
            yield from _node_locations(value)
        elif number == _GRAPH_INITIALIZER:
            yield from _tensor_locations(value)
        elif number == _GRAPH_SPARSE:
            yield from _sparse_locations(value)


def _node_locations(node: memoryview) -> Iterator[str]:
    operator = text_field(node, _NODE_OPERATOR)
    if operator in _COMPILED:
        raise ExecutorError(f"operator {operator} is a compiled program, which is never run here")
    for number, attribute in submessages(node):
        if number != _NODE_ATTRIBUTE:
            continue
        for part, value in submessages(attribute):
            if part in _ATTRIBUTE_TENSORS:
                yield from _tensor_locations(value)
            elif part in _ATTRIBUTE_GRAPHS:
                yield from _locations(value)
            elif part in _ATTRIBUTE_SPARSE:
                yield from _sparse_locations(value)


def _sparse_locations(sparse: memoryview) -> Iterator[str]:
    for number, tensor in submessages(sparse):
        if number in _SPARSE_TENSORS:
            yield from _tensor_locations(tensor)


def _tensor_locations(tensor: memoryview) -> Iterator[str]:
    for number, entry in submessages(tensor):
        if number == _TENSOR_EXTERNAL_DATA:
            location = text_field(entry, _ENTRY_VALUE)
            if text_field(entry, _ENTRY_KEY) == "location" and location:
                yield location


def _resolve(graph: Path, location: str) -> Path:
    folder = graph.parent.resolve()
    try:
        path = (folder / location).resolve()
        is_there = path.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, links in a circle
        raise ExecutorError(f"{graph} refers to weights by no name of a file") from None
    if not path.is_relative_to(folder):
        raise ExecutorError(f"{graph} refers to weights outside its own directory: {location!r}")
    if not is_there:
        raise ExecutorError(f"the weights of {graph} are missing: {path}; send the subnet again")
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
