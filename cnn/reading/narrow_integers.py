"""Read integers of 2 and 4 bits as integers of 8 bits.

NumPy has no such integers, and most engines take few of them. `DequantizeLinear` and the operators
that only move values do the same with wider integers, so `widen_integers` keeps the values and
changes the type. `QuantizeLinear` rounds to the narrow range, which a `Clip` after it restores. A
weight then takes a byte per value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.bodies import bodies
from cnn.operators.supported import describe, numpy_dtype
from cnn.reading.weights import messages


@dataclass(frozen=True, slots=True)
class _Wide:
    """The type of 8 bits for a narrow one, whose least and greatest values are given."""

    kind: int
    dtype: type[np.generic]
    least: int
    most: int


NARROW: Mapping[int, _Wide] = {
    getattr(TensorProto, name): wide
    for name, wide in (
        ("INT4", _Wide(TensorProto.INT8, np.int8, -8, 7)),
        ("UINT4", _Wide(TensorProto.UINT8, np.uint8, 0, 15)),
        ("INT2", _Wide(TensorProto.INT8, np.int8, -2, 1)),
        ("UINT2", _Wide(TensorProto.UINT8, np.uint8, 0, 3)),
    )
    if hasattr(TensorProto, name)  # those of 2 bits are recent
}

_MOVING = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "Pad"}
    | {"Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
_READING = frozenset({"Cast", "DequantizeLinear", "Shape", "Size"})
"""Operators that read narrow integers and make something else."""


def widen_integers(proto: onnx.ModelProto, weights: dict[str, Array], label: str) -> None:
    """Replace integers of 2 and 4 bits by wider ones in `proto` and its `weights`, in place.

    Raises `ModelError` for an input or output of the model of such a type, and for an operator that
    would compute something else with wider integers.
    """
    for value, what in (
        *((value, "input") for value in proto.graph.input if value.name not in weights),
        *((value, "output") for value in proto.graph.output),
    ):
        if value.type.tensor_type.elem_type in NARROW:
            numpy_dtype(value.type.tensor_type.elem_type, f"{label}: {what} {value.name!r}")
    narrow: dict[str, int] = {}
    for name, array in weights.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        if kind in NARROW:
            narrow[name] = kind
            weights[name] = array.astype(NARROW[kind].dtype)
    _widen_graph(proto.graph, narrow, label)
    for message in messages(proto):
        if isinstance(message, onnx.TypeProto.Tensor) and message.elem_type in NARROW:
            message.elem_type = NARROW[message.elem_type].kind
        elif isinstance(message, onnx.TensorProto) and message.data_type in NARROW:
            try:
                array = numpy_helper.to_array(message)
            except (TypeError, ValueError) as error:
                raise ModelError(
                    f"{label}: the constant {message.name!r} does not contain the values of its "
                    "shape"
                ) from error
            wide = array.astype(NARROW[message.data_type].dtype)
            message.CopyFrom(numpy_helper.from_array(wide, message.name))


def _widen_graph(graph: onnx.GraphProto, outer: Mapping[str, int], label: str) -> None:
    """Check the operators that read narrow tensors, and bound those that make them."""
    narrow = {**outer, **{x.name: x.data_type for x in graph.initializer if x.data_type in NARROW}}
    nodes = []
    for node in graph.node:
        for body in bodies(node):
            _widen_graph(body, narrow, label)
        nodes.append(node)
        read = [narrow[name] for name in node.input if name in narrow]
        if node.op_type == "Constant":
            kinds = {x.t.data_type for x in node.attribute if x.HasField("t")} & NARROW.keys()
            narrow.update((name, kind) for name in node.output for kind in kinds)
        elif node.op_type == "QuantizeLinear":
            kind = next((narrow[x] for x in node.input[2:3] if x in narrow), _output_kind(node))
            if kind in NARROW:
                narrow[node.output[0]] = kind
                nodes.extend(_bounded(node, NARROW[kind]))
        elif read and node.op_type in _MOVING:
            narrow.update(dict.fromkeys(filter(None, node.output), read[0]))
        elif _makes_narrow(node) or (read and node.op_type not in _READING):
            kind = read[0] if read else TensorProto.INT4
            name = TensorProto.DataType.Name(kind).lower()
            raise ModelError(
                f"{label}: {describe(node)} computes with {name} values, which NumPy does not "
                "have; only weights and quantised tensors may have so few bits. Export the model "
                "in 8-bit integers"
            )
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _output_kind(node: onnx.NodeProto) -> int:
    return next((x.i for x in node.attribute if x.name == "output_dtype"), TensorProto.UNDEFINED)


def _makes_narrow(node: onnx.NodeProto) -> bool:
    return any(x.name in ("to", "dtype") and x.i in NARROW for x in node.attribute)


def _bounded(node: onnx.NodeProto, wide: _Wide) -> Iterator[onnx.NodeProto]:
    """Let a `QuantizeLinear` make wide integers, and yield operators that bound them."""
    for attribute in node.attribute:
        if attribute.name == "output_dtype":
            attribute.i = wide.kind
    made = node.output[0]
    ends = [f"{made}~least", f"{made}~most"]
    for end, value in zip(ends, (wide.least, wide.most), strict=True):
        array = np.array(value, wide.dtype)
        yield helper.make_node("Constant", [], [end], value=numpy_helper.from_array(array, end))
    node.output[0] = f"{made}~wide"
    clip = f"{node.name or made}~clip"
    yield helper.make_node("Clip", [node.output[0], *ends], [made], clip)
