"""Writes small ONNX models, and single layers, without the `onnx` package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from nodes.executors.onnx.protobuf import field, integer_field
from nodes.executors.onnx.schema import (
    SHAPE_DIM,
    TENSOR_ELEMENT_TYPE,
    TENSOR_SHAPE,
    TYPE_TENSOR,
    AttributeField,
    DimensionField,
    GraphField,
    ModelField,
    NodeField,
    OperatorSetField,
    TensorField,
    ValueInfoField,
)
from nodes.executors.onnx.signature import DTYPES
from nodes.protocol.payload import Array

_IR_VERSION, _OPSET = 7, 13
"""Versions of the format and of ONNX's operators that every engine reads."""

_INT, _INTS = 2, 7
"""`AttributeProto.AttributeType`: an integer, and several."""

_KINDS = {dtype: kind for kind, dtype in DTYPES.items()}


def node(
    operator: str,
    inputs: Iterable[str] = (),
    outputs: Iterable[str] = (),
    attributes: Mapping[str, int | Sequence[int]] = MappingProxyType({}),
    name: str = "",
    domain: str = "",
) -> bytes:
    """Return a node of a graph."""
    message = b"".join(field(NodeField.INPUT, each.encode()) for each in inputs)
    message += b"".join(field(NodeField.OUTPUT, each.encode()) for each in outputs)
    message += field(NodeField.NAME, name.encode()) if name else b""
    message += field(NodeField.OP_TYPE, operator.encode())
    message += field(NodeField.DOMAIN, domain.encode()) if domain else b""
    return message + b"".join(
        field(NodeField.ATTRIBUTE, _attribute(*item)) for item in attributes.items()
    )


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        kind, content = _INT, integer_field(AttributeField.I, value)
    else:
        kind = _INTS
        content = b"".join(integer_field(AttributeField.INTS, each) for each in value)
    named = field(AttributeField.NAME, name.encode())
    return named + content + integer_field(AttributeField.TYPE, kind)


def value_info(name: str, dtype: str, shape: Sequence[int] | None = None) -> bytes:
    """Return an input or output of a graph, of NumPy's `dtype`; without a shape, of any."""
    tensor = integer_field(TENSOR_ELEMENT_TYPE, _KINDS[dtype])
    if shape is not None:
        axes = (integer_field(DimensionField.DIM_VALUE, size) for size in shape)
        tensor += field(TENSOR_SHAPE, b"".join(field(SHAPE_DIM, axis) for axis in axes))
    kind = field(ValueInfoField.TYPE, field(TYPE_TENSOR, tensor))
    return field(ValueInfoField.NAME, name.encode()) + kind


def operator_set(domain: str, version: int) -> bytes:
    """Return the version of a domain's operators that a model uses."""
    named = field(OperatorSetField.DOMAIN, domain.encode()) if domain else b""
    return named + integer_field(OperatorSetField.VERSION, version)


def model_of(
    name: str,
    nodes: Iterable[bytes],
    taken: bytes,
    made: bytes,
    weights: Mapping[str, Array] = MappingProxyType({}),
    opsets: Mapping[str, int] = MappingProxyType({"": _OPSET}),
) -> bytes:
    """Return a model of one graph with an input `taken`, an output `made`, and `weights`."""
    graph = b"".join(field(GraphField.NODE, each) for each in nodes)
    graph += field(GraphField.NAME, name.encode())
    graph += b"".join(field(GraphField.INITIALIZER, _weight(*weight)) for weight in weights.items())
    graph += field(GraphField.INPUT, taken) + field(GraphField.OUTPUT, made)
    used = (field(ModelField.OPSET_IMPORT, operator_set(*opset)) for opset in opsets.items())
    version = integer_field(ModelField.IR_VERSION, _IR_VERSION)
    return version + field(ModelField.GRAPH, graph) + b"".join(used)


def _weight(name: str, array: Array) -> bytes:
    dims = b"".join(integer_field(TensorField.DIMS, size) for size in array.shape)
    kind = integer_field(TensorField.DATA_TYPE, _KINDS[array.dtype.name])
    named = field(TensorField.NAME, name.encode())
    return dims + kind + named + field(TensorField.RAW_DATA, array.tobytes())
