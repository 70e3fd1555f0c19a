"""Lets packed weights begin where kernels may load whole vectors from.

ONNX Runtime (1.31 at least) writes what a kernel has packed right behind the weight itself,
wherever that ends. Kernels expect their blocks at multiples of 64 bytes, as an allocator gives
them; mapped from another offset of the file, a block makes them crash. So the file is written anew,
everything in it at such an offset, and with it the model that names the places.

A packed block is named in its weight's `external_data`: the value of `prepacked_0` is
`KERNEL+HASH|OFFSET;LENGTH;SUM`, with more of `|OFFSET;LENGTH;SUM` if there are several blocks. A
kernel may leave a block empty (`QLinearConv` with one channel per group does), which ONNX Runtime
writes and cannot read again; so its blocks are left out, and it packs when it is loaded.
The numbers of fields are those of onnx.proto3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from nodes.executors.onnx.protobuf import field, fields, parts, submessages, text_field

ALIGNMENT = 64
"""Bytes: a cache line, the longest vector, and what ONNX Runtime's own allocator gives."""

_PAGE = 4096
_PAGE_ALIGNED_BYTES = 1 << 20

_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_GRAPHS = (6, 11)
_TENSOR_EXTERNAL = 13
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_CHUNK_BYTES = 1 << 20

Move = Callable[[int, int], int]
"""(offset, bytes) → another offset."""


def realign(model: Path, weights: Path) -> bool:
    """Write both files anew if a packed block is empty or lies at no multiple of `ALIGNMENT`.

    False, and nothing is written, for a model with bodies, whose weights are not followed. Raises
    ValueError or IndexError for what is no ONNX model, OSError if the disk refuses.
    """
    content = model.read_bytes()
    if _has_bodies(content):
        return False
    packed: list[int] = []

    def note(offset: int, _: int) -> int:
        packed.append(offset)
        return offset

    _moved(content, lambda offset, _: offset, note)
    if not any(offset % ALIGNMENT for offset in packed) and not _has_empty_blocks(content):
        return True
    aligned = weights.with_name(f"{weights.name}.aligned")
    with weights.open("rb") as source, aligned.open("wb") as target:

        def copy(offset: int, size: int) -> int:
            target.seek(-target.tell() % (_PAGE if size >= _PAGE_ALIGNED_BYTES else ALIGNMENT), 1)
            start = target.tell()
            _copy(source, offset, size, target)
            return start

        edited = _moved(content, copy, copy)
    model.write_bytes(edited)
    os.replace(aligned, weights)
    return True


def _has_bodies(model: bytes) -> bool:
    return any(
        part in _ATTRIBUTE_GRAPHS
        for outer, graph in submessages(memoryview(model))
        if outer == _GRAPH
        for number, node in submessages(graph)
        if number == _NODE
        for inner, attribute in submessages(node)
        if inner == _NODE_ATTRIBUTE
        for part, _ in submessages(attribute)
    )


def _has_empty_blocks(model: bytes) -> bool:
    return any(
        _is_empty(text_field(entry, _ENTRY_VALUE) or "")
        for outer, graph in submessages(memoryview(model))
        if outer == _GRAPH
        for number, tensor in submessages(graph)
        if number == _INITIALIZER
        for part, entry in submessages(tensor)
        if part == _TENSOR_EXTERNAL and _is_packed(text_field(entry, _ENTRY_KEY) or "")
    )


def _is_packed(key: str) -> bool:
    return key.startswith("prepacked")


def _is_empty(text: str) -> bool:
    """Whether one of the packed blocks in a value of `external_data` has no bytes."""
    return any(block.split(";")[1] == "0" for block in text.split("|")[1:])


def _copy(source: IO[bytes], offset: int, size: int, target: IO[bytes]) -> None:
    source.seek(offset)
    while size:
        chunk = source.read(min(size, _CHUNK_BYTES))
        if not chunk:
            raise ValueError("the weights end before a tensor does")
        target.write(chunk)
        size -= len(chunk)


def _moved(model: bytes, move: Move, move_packed: Move) -> bytes:
    """The model with every weight, and every packed block, at the offset that these say."""
    return b"".join(
        field(_GRAPH, b"".join(_moved_graph(value, move, move_packed)))
        if number == _GRAPH and isinstance(value, memoryview)
        else bytes(part)
        for number, value, part in parts(memoryview(model))
    )


def _moved_graph(graph: memoryview, move: Move, move_packed: Move) -> Iterator[bytes]:
    for number, value, part in parts(graph):
        if not isinstance(value, memoryview):
            yield bytes(part)
            continue
        is_moved = number == _INITIALIZER and any(
            key == _TENSOR_EXTERNAL for key, _ in fields(value)
        )
        yield field(number, _moved_tensor(value, move, move_packed)) if is_moved else bytes(part)


def _moved_tensor(tensor: memoryview, move: Move, move_packed: Move) -> bytes:
    entries: dict[str, str] = {}
    others = []
    for number, value, part in parts(tensor):
        if number == _TENSOR_EXTERNAL and isinstance(value, memoryview):
            entries[text_field(value, _ENTRY_KEY) or ""] = text_field(value, _ENTRY_VALUE) or ""
        else:
            others.append(bytes(part))
    entries["offset"] = str(move(int(entries.get("offset", 0)), int(entries["length"])))
    entries = {k: v for k, v in entries.items() if not (_is_packed(k) and _is_empty(v))}
    for key, text in entries.items():
        if _is_packed(key):
            entries[key] = _moved_blocks(text, move_packed)
    written = (
        field(_TENSOR_EXTERNAL, field(_ENTRY_KEY, k.encode()) + field(_ENTRY_VALUE, v.encode()))
        for k, v in entries.items()
    )
    return b"".join((*others, *written))


def _moved_blocks(text: str, move: Move) -> str:
    kernel, *blocks = text.split("|")
    moved = []
    for block in blocks:
        offset, size, rest = block.split(";", 2)
        moved.append(f"{move(int(offset), int(size))};{size};{rest}")
    return "|".join((kernel, *moved))
