"""Reads which inputs and outputs an ONNX file declares, and how its layers are called.

Engines rename tensors and convert dtypes while they parse. What a subnet takes and returns is what
its file declares. The files have passed `nodes.executors.onnx.file.inspect`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.executors.onnx.protobuf import fields, nested, submessages, text_field
from nodes.executors.onnx.schema import (
    TYPE_TENSOR,
    GraphField,
    NodeField,
    TensorField,
    ValueInfoField,
    graphs,
)

_ELEM_TYPE = 1
"""`TypeProto.Tensor.elem_type`."""

_DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip
"""The members of `TensorProto.DataType` by number."""


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """The name and dtype that a file declares for an input or output; NumPy's name if it has one.

    The dtype is "" where the file states none.
    """

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class Signature:
    """The inputs and outputs of a model, in its order. Weights are not inputs."""

    inputs: tuple[DeclaredTensor, ...]
    outputs: tuple[DeclaredTensor, ...]


def read_signature(path: Path) -> Signature:
    """Return what the file at `path` declares.

    Raises OSError if it cannot be read, ValueError or IndexError if it is malformed.
    """
    model = path.read_bytes()
    weights = {
        text_field(weight, TensorField.NAME) for weight in _of_graph(model, GraphField.INITIALIZER)
    }
    inputs = tuple(map(_declared, _of_graph(model, GraphField.INPUT)))
    return Signature(
        tuple(tensor for tensor in inputs if tensor.name not in weights),
        tuple(map(_declared, _of_graph(model, GraphField.OUTPUT))),
    )


def layer_name(path: Path, index: int) -> str:
    """Return the name of the node with this index in the file's graph, or of its first output.

    Unnamed layers are called by their first output everywhere. Returns "" if there is no such node.
    """
    for number, node in enumerate(_of_graph(path.read_bytes(), GraphField.NODE)):
        if number == index:
            outputs = (
                str(value, "utf-8") for key, value in submessages(node) if key == NodeField.OUTPUT
            )
            return text_field(node, NodeField.NAME) or next(outputs, "")
    return ""


def _of_graph(model: bytes, wanted: GraphField) -> Iterator[memoryview]:
    for graph in graphs(memoryview(model)):
        for number, message in submessages(graph):
            if number == wanted:
                yield message


def _declared(value: memoryview) -> DeclaredTensor:
    types = [
        number
        for tensor in nested(value, (ValueInfoField.TYPE, TYPE_TENSOR))
        for key, number in fields(tensor)
        if key == _ELEM_TYPE and isinstance(number, int)
    ]
    dtype = _DTYPES.get(types[-1], f"ONNX's type {types[-1]}") if types else ""
    return DeclaredTensor(text_field(value, ValueInfoField.NAME) or "", dtype)
