"""Decides which subnets load weights that ONNX Runtime has packed, and aligns packed weights.

A kernel packs a weight: it rearranges it for its own loops. ONNX Runtime packs while it loads a
model, or while it writes an optimised one.

**Which subnets keep their weights as they are.** While ONNX Runtime loads a model it reads and
copies the weights of matrices one after the other, even those that lie packed in a file, before it
drops each copy for the file's pages. For the largest layers of VGG16 that takes 300 MB for a
moment, on top of as much in pages of the file. But packing pays only for products of many rows. A
network that computes one frame at a time multiplies one row, which takes as long with weights as
they are (measured: 8.4 and 8.3 ms for 25088 × 2926). `multiplies_single_rows` reads how many rows
there are from the shapes of the products' results (`value_info`), which the launcher writes into a
subnet.

**Where packed weights begin.** ONNX Runtime (1.31 at least) writes a packed block right after the
weight itself, wherever that ends. Kernels expect their blocks at multiples of 64 bytes, as an
allocator gives them; a block that is mapped from another offset of the file makes them crash.
`realign` therefore rewrites the file with every weight and block at such an offset, and the model
with the new offsets. A weight's `external_data` names its blocks: the value of `prepacked_0` is
`KERNEL+HASH|OFFSET;LENGTH;SUM`, with another `|OFFSET;LENGTH;SUM` per further block. A kernel may
leave a block empty (`QLinearConv` with one channel per group does), which ONNX Runtime writes and
cannot read again. `realign` omits all blocks of such a weight, which ONNX Runtime then packs on
loading.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from nodes.executors.onnx.protobuf import (
    edited,
    field,
    has_field,
    nested,
    number_field,
    parts,
    submessages,
    text_field,
    texts,
)
from nodes.executors.onnx.schema import (
    FLOAT,
    EntryField,
    GraphField,
    ModelField,
    NodeField,
    TensorField,
    ValueInfoField,
    dimensions,
    graphs,
    has_bodies,
)

UNPACKED = "unpacked"
"""The name of an empty file in an entry of the cache whose weights are not packed."""

ALIGNMENT = 64
"""Bytes: a cache line, the longest vector, and what ONNX Runtime's own allocator gives."""

_PAGE_ALIGNED_BYTES = 1 << 20
"""Weights of at least this size begin at a multiple of this machine's page."""

_CHUNK_BYTES = 1 << 20

_PRODUCTS = frozenset({"Gemm", "MatMul"})
_BLOCKED_LAYOUT_DOMAIN = "com.microsoft.nchwc"
_NEVER_PACKED = frozenset(
    {"Add", "Sub", "Mul", "Div", "Sum", "Concat", "Gemm", "MatMul", "FusedGemm", "FusedMatMul"}
)
_PACKED_UNLESS_FLOAT = frozenset({"Conv", "FusedConv"})
"""Convolutions outside of the blocked layout, as ARM has all: measured on x86-64 and Cortex-A72.
Processors with SME may pack floats too; there such a subnet computes without."""

Move = Callable[[int, int], int]
"""(offset, bytes) → the new offset."""

# ------------------------------------------------------------ which subnets


def multiplies_single_rows(model: bytes) -> bool:
    """Return whether a subnet has products of matrices, all of one row each.

    A product of unknown shape counts as one of several rows. Raises ValueError or IndexError if the
    bytes are not an ONNX model.
    """
    rows: dict[str, int] = {}
    products = []
    for graph in _graphs(model):
        for number, message in submessages(graph):
            if number in (GraphField.OUTPUT, GraphField.VALUE_INFO):
                name = text_field(message, ValueInfoField.NAME) or ""
                rows[name] = math.prod(dimensions(message)[:-1])
            elif number == GraphField.NODE and text_field(message, NodeField.OP_TYPE) in _PRODUCTS:
                products.append(text_field(message, NodeField.OUTPUT) or "")
    return bool(products) and all(rows.get(name) == 1 for name in products)


def packs_others(model: bytes) -> bool:
    """Return whether other operators than products may pack weights of an optimised model.

    Weights inside the model file do not count. Returns True for a model with bodies, which it does
    not examine. Raises as `multiplies_single_rows`.
    """
    if has_bodies(memoryview(model)):
        return True
    weights, not_float = set(), set()
    for graph in _graphs(model):
        for tensor in nested(graph, (GraphField.INITIALIZER,)):
            if has_field(tensor, TensorField.EXTERNAL_DATA):
                name = text_field(tensor, TensorField.NAME)
                weights.add(name)
                if number_field(tensor, TensorField.DATA_TYPE) != FLOAT:
                    not_float.add(name)

    def packs(node: memoryview) -> bool:
        operator = text_field(node, NodeField.OP_TYPE)
        if (
            operator in _NEVER_PACKED
            or text_field(node, NodeField.DOMAIN) == _BLOCKED_LAYOUT_DOMAIN
        ):
            return False
        packed = not_float if operator in _PACKED_UNLESS_FLOAT else weights
        return not packed.isdisjoint(texts(node, NodeField.INPUT))

    return any(
        packs(node) for graph in _graphs(model) for node in nested(graph, (GraphField.NODE,))
    )


def _graphs(model: bytes) -> Iterator[memoryview]:
    found = False
    for graph in graphs(memoryview(model)):
        found = True
        yield graph
    if not found:
        raise ValueError("not an ONNX model")


# ------------------------------------------------------------ where blocks begin


def realign(model: Path, weights: Path) -> bool:
    """Rewrite both files if a packed block is empty or is at no multiple of `ALIGNMENT`.

    Returns False, and writes nothing, for a model with bodies, whose weights it does not follow.
    Raises ValueError or IndexError if the bytes are not an ONNX model, OSError if the disk fails.
    """
    content = model.read_bytes()
    if has_bodies(memoryview(content)):
        return False
    packed: list[int] = []

    def note(offset: int, _: int) -> int:
        packed.append(offset)
        return offset

    _moved(content, lambda offset, _: offset, note)
    if not any(offset % ALIGNMENT for offset in packed) and not _has_empty_blocks(content):
        return True
    aligned, page_bytes = weights.with_name(f"{weights.name}.aligned"), os.sysconf("SC_PAGE_SIZE")
    with weights.open("rb") as source, aligned.open("wb") as target:

        def copy(offset: int, size: int) -> int:
            unit = page_bytes if size >= _PAGE_ALIGNED_BYTES else ALIGNMENT
            target.seek(-target.tell() % unit, 1)
            start = target.tell()
            _copy(source, offset, size, target)
            return start

        moved = _moved(content, copy, copy)
    model.write_bytes(moved)
    os.replace(aligned, weights)
    return True


def _has_empty_blocks(model: bytes) -> bool:
    path = (ModelField.GRAPH, GraphField.INITIALIZER, TensorField.EXTERNAL_DATA)
    return any(
        _is_packed(text_field(entry, EntryField.KEY) or "")
        and _is_empty(text_field(entry, EntryField.VALUE) or "")
        for entry in nested(memoryview(model), path)
    )


def _is_packed(key: str) -> bool:
    return key.startswith("prepacked")


def _is_empty(text: str) -> bool:
    """Return whether one of the packed blocks in a value of `external_data` has no bytes."""
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
    """Return the model with every weight, and every packed block, at its new offset."""

    def moved_tensor(tensor: memoryview) -> bytes:
        if not has_field(tensor, TensorField.EXTERNAL_DATA):
            return bytes(tensor)
        return _moved_tensor(tensor, move, move_packed)

    def moved_graph(graph: memoryview) -> bytes:
        return edited(graph, GraphField.INITIALIZER, moved_tensor)

    return edited(memoryview(model), ModelField.GRAPH, moved_graph)


def _moved_tensor(tensor: memoryview, move: Move, move_packed: Move) -> bytes:
    entries: dict[str, str] = {}
    others = []
    for number, value, part in parts(tensor):
        if number == TensorField.EXTERNAL_DATA and isinstance(value, memoryview):
            key = text_field(value, EntryField.KEY) or ""
            entries[key] = text_field(value, EntryField.VALUE) or ""
        else:
            others.append(bytes(part))
    entries["offset"] = str(move(int(entries.get("offset", 0)), int(entries["length"])))
    entries = {k: v for k, v in entries.items() if not (_is_packed(k) and _is_empty(v))}
    for key, text in entries.items():
        if _is_packed(key):
            entries[key] = _moved_blocks(text, move_packed)
    written = (
        field(
            TensorField.EXTERNAL_DATA,
            field(EntryField.KEY, k.encode()) + field(EntryField.VALUE, v.encode()),
        )
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
