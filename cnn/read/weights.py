"""Weights as arrays, apart from the operators that read them.

A protobuf with a network's weights inside is copied whenever it is touched, and cannot pass 2 GiB.
So the weights leave it as soon as it is parsed. Those in external files are mapped
(`cnn.read.external`): they take no memory until something looks at them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from cnn.errors import ModelError
from cnn.operators.supported import numpy_dtype
from cnn.read.external import Contents, array_in, copied, file_of, is_external

Array = NDArray[np.generic]

INLINE_BYTES = 1024
"""Tensors below this size belong to the graph: shapes, axes and scales that inference looks at."""

_MOST_DIMENSIONS = 32
"""Of an array in every version of NumPy."""


def take(
    proto: onnx.ModelProto, external: Mapping[str, Contents], label: str
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model without its initialisers, and these by name; `proto` is used up.

    `external` is what `external_contents` found. Raises `ModelError` if a weight is not there.
    """
    graph = proto.graph
    if graph.sparse_initializer:
        raise ModelError(f"{label}: the model has sparse weights; export it with dense ones")
    arrays = {tensor.name: _array(tensor, external, label) for tensor in graph.initializer}
    graph.ClearField("initializer")
    lean = onnx.ModelProto()
    lean.CopyFrom(proto)  # a protobuf message gives memory back only as a whole
    return lean, arrays


def external_contents(proto: onnx.ModelProto, directory: Path, label: str) -> dict[str, Contents]:
    """The files that a model's weights lie in, as the model calls them → what they hold, in order.

    Raises `ModelError` unless all of them are regular files inside of `directory`.
    """
    files = {
        _location(tensor): file_of(tensor, directory, _called(tensor, label))
        for tensor in proto.graph.initializer
        if is_external(tensor)
    }
    held = {file: copied(file) for file in set(files.values())}
    return {location: held[files[location]] for location in sorted(files)}


def names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """Every tensor that a graph reads or gives out, in the branches of its nodes too."""
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from names_read(attribute.g)
    yield from (output.name for output in graph.output)


def tensor(name: str, array: Array) -> onnx.TensorProto:
    """An array as an initialiser that holds its own data."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)


def described(name: str, array: Array) -> onnx.ValueInfoProto:
    """An array as an input of its shape and dtype."""
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def declare(graph: onnx.GraphProto, weights: Mapping[str, Array]) -> None:
    """Give `graph` its small weights by value and its large ones as inputs, for inference."""
    for name, array in weights.items():
        if array.nbytes < INLINE_BYTES:
            graph.initializer.append(tensor(name, array))
        else:
            graph.input.append(described(name, array))


def widened(array: Array) -> Array:
    """The exact values in float32 of an array of bfloat16, which may come as its bits (uint16)."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32)


def _location(proto: onnx.TensorProto) -> str:
    return next((entry.value for entry in proto.external_data if entry.key == "location"), "")


def _called(proto: onnx.TensorProto, label: str) -> str:
    return f"{label}: weight {proto.name!r}"


def _array(proto: onnx.TensorProto, external: Mapping[str, Contents], label: str) -> Array:
    what = _called(proto, label)
    is_bfloat16 = proto.data_type == onnx.TensorProto.BFLOAT16
    dtype = np.dtype(np.uint16 if is_bfloat16 else numpy_dtype(proto.data_type, what))
    shape = tuple(proto.dims)
    if len(shape) > _MOST_DIMENSIONS or any(size < 0 for size in shape):
        raise ModelError(f"{what} has no possible shape; export the model again")
    try:
        if is_external(proto):
            array = array_in(external[_location(proto)], proto, shape, dtype, what)
        else:
            array = np.ascontiguousarray(numpy_helper.to_array(proto)).reshape(shape)
        return widened(array) if is_bfloat16 else array
    except (TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{what} does not hold the {math.prod(shape)} values it names") from error
