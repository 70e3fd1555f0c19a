"""Which subnets gain nothing from ONNX Runtime's packing of weights.

It packs the weights of matrices while it loads a model, even those that lie packed in a file: one
after the other, they are read and copied before the copy is dropped for the file's. For the largest
layers of VGG16 that is 300 MB in passing, on top of as much in pages of the file. But packing pays
for products of many rows only; a network that computes one frame at a time multiplies one row, for
which weights as they are take as long (measured: 8.4 and 8.3 ms for 25088 × 2926).

A subnet tells how many rows its products have by the shapes of what they make (`value_info`), which
the launcher writes into it. The numbers are those of onnx.proto3.

Lets packed weights begin where kernels may load whole vectors from.

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


UNPACKED = "unpacked"
"""A file in an entry whose weights are not packed."""

_GRAPH = 7
_NODE, _INITIALIZER, _OUTPUT, _VALUE_INFO = 1, 5, 12, 13
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_GRAPHS = (6, 11)
_TENSOR_NAME, _TENSOR_EXTERNAL = 8, 13
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TENSOR_TYPE, _SHAPE, _DIMENSION, _DIMENSION_VALUE = 1, 2, 1, 1

_PRODUCTS = frozenset({"Gemm", "MatMul"})
_OWN_LAYOUT = "com.microsoft.nchwc"
_NEVER_PACKED = frozenset(
    {"Add", "Sub", "Mul", "Div", "Sum", "Concat", "Gemm", "MatMul", "FusedGemm", "FusedMatMul"}
)


def multiplies_single_rows(model: bytes) -> bool:
    """Whether a subnet has products of matrices, each with one row, as far as it tells.

    Raises ValueError or IndexError for what is no ONNX model.
    """
    graph = _graph(model)
    rows = dict(_rows(graph))
    products = []
    for number, node in submessages(graph):
        if number == _NODE and text_field(node, _NODE_OPERATOR) in _PRODUCTS:
            products.append(text_field(node, _NODE_OUTPUT))
    return bool(products) and all(rows.get(name or "") == 1 for name in products)


def packs_others(model: bytes) -> bool:
    """Whether an optimised model has weights in files that something else than a product may pack,
    or bodies. Raises as `multiplies_single_rows`."""
    graph = _graph(model)
    weights = set()
    for number, tensor in submessages(graph):
        if number == _INITIALIZER and _has(tensor, _TENSOR_EXTERNAL):
            weights.add(text_field(tensor, _TENSOR_NAME))
    for number, node in submessages(graph):
        if number != _NODE:
            continue
        known = text_field(node, _NODE_OPERATOR) in _NEVER_PACKED
        if known or text_field(node, _NODE_DOMAIN) == _OWN_LAYOUT:
            continue
        for part, content in submessages(node):
            if part == _NODE_INPUT and str(content, "utf-8") in weights:
                return True
            if part == _NODE_ATTRIBUTE and any(_has(content, n) for n in _ATTRIBUTE_GRAPHS):
                return True
    return False


def _graph(model: bytes) -> memoryview:
    for number, value in fields(memoryview(model)):
        if number == _GRAPH and isinstance(value, memoryview):
            return value
    raise ValueError("no ONNX model")


def _rows(graph: memoryview) -> Iterator[tuple[str, int]]:
    """Tensors of known shape, each with the product of its dimensions but the last."""
    for number, value in submessages(graph):
        if number in (_OUTPUT, _VALUE_INFO):
            rows = 1
            for dimension in _dimensions(value)[:-1]:
                rows *= dimension
            yield text_field(value, _VALUE_NAME) or "", rows


def _dimensions(value: memoryview) -> list[int]:
    """Of a tensor's type; 0 for one that has no number."""
    found = []
    for each in _all(value, (_VALUE_TYPE, _TENSOR_TYPE, _SHAPE, _DIMENSION)):
        numbers = [n for key, n in fields(memoryview(each)) if key == _DIMENSION_VALUE]
        found.append(numbers[0] if numbers and isinstance(numbers[0], int) else 0)
    return found


def _all(message: memoryview, path: tuple[int, ...]) -> Iterator[bytes]:
    """All messages that are reached by these fields, one in the other."""
    if not path:
        yield bytes(message)
        return
    for number, value in submessages(message):
        if number == path[0]:
            yield from _all(value, path[1:])


def _has(message: memoryview, wanted: int) -> bool:
    return any(number == wanted for number, _ in fields(message))
