"""Reads which inputs and outputs an ONNX file declares, and how its layers are called.

Engines rename tensors and convert dtypes while they parse. A subnet's inputs and outputs are those
that its file declares. The files have passed `nodes.executors.onnx.file.inspect`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes.executors.onnx.protobuf import nested, number_field, submessages, text_field, texts
from nodes.executors.onnx.schema import (
    NODE,
    TENSOR_ELEMENT_TYPE,
    TENSOR_SHAPE,
    TYPE_TENSOR,
    AttributeField,
    GraphField,
    NodeField,
    TensorField,
    ValueInfoField,
    graphs,
    walk,
)
from nodes.protocol.fields import printable

_TENSOR_TYPE = ValueInfoField.TYPE, TYPE_TENSOR
_UINT8 = 2

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip
"""The members of `TensorProto.DataType` by number."""


@dataclass(frozen=True, slots=True)
class DeclaredTensor:
    """The name and dtype that a file declares for an input or output; NumPy's name if it has one.

    The dtype is "" where the file states none. Without a shape its rank is unknown.
    """

    name: str
    dtype: str
    has_shape: bool = True


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
            return _name(node)
    return ""


def layer_with(path: Path, operator: str, output: str | None = None) -> str | None:
    """Return the name of the first layer with this operator, and this output if it is given.

    Layers of graphs inside of nodes count as well. Returns None without such a layer.
    """
    for kind, node, _ in walk(memoryview(path.read_bytes())):
        if kind != NODE or text_field(node, NodeField.OP_TYPE) != operator:
            continue
        if output is None or output in texts(node, NodeField.OUTPUT):
            return printable(_name(node))
    return None


def unsigned_quantiser(path: Path) -> str:
    """Return the name of the first `QuantizeLinear` whose result is uint8; "" without one.

    The zero point has the result's dtype; without one it is `output_dtype`, which is uint8 if it is
    left out. A zero point that a layer computes is not examined.
    """
    model = path.read_bytes()
    kinds = {
        text_field(weight, TensorField.NAME): number_field(weight, TensorField.DATA_TYPE)
        for weight in _of_graph(model, GraphField.INITIALIZER)
    }
    for node in _of_graph(model, GraphField.NODE):
        if text_field(node, NodeField.OP_TYPE) != "QuantizeLinear":
            continue
        zero_point = texts(node, NodeField.INPUT)[2:3]
        kind = kinds.get(zero_point[0]) if any(zero_point) else _output_dtype(node)
        if kind == _UINT8:
            return _name(node)
    return ""


def _output_dtype(node: memoryview) -> int:
    for attribute in nested(node, (NodeField.ATTRIBUTE,)):
        if text_field(attribute, AttributeField.NAME) == "output_dtype":
            return number_field(attribute, AttributeField.I) or _UINT8
    return _UINT8


def _name(node: memoryview) -> str:
    return text_field(node, NodeField.NAME) or next(iter(texts(node, NodeField.OUTPUT)), "")


def _of_graph(model: bytes, wanted: GraphField) -> Iterator[memoryview]:
    for graph in graphs(memoryview(model)):
        for number, message in submessages(graph):
            if number == wanted:
                yield message


def _declared(value: memoryview) -> DeclaredTensor:
    types = [number_field(tensor, TENSOR_ELEMENT_TYPE) for tensor in nested(value, _TENSOR_TYPE)]
    kind = types[-1] if types else 0
    dtype = DTYPES.get(kind, f"ONNX's type {kind}") if kind else ""
    has_shape = any(True for _ in nested(value, (*_TENSOR_TYPE, TENSOR_SHAPE)))
    return DeclaredTensor(text_field(value, ValueInfoField.NAME) or "", dtype, has_shape)
