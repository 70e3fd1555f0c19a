"""Rewrite what ONNX lets a file write in several ways to the one way that later steps read.

- ONNX's own domain may be spelt out as `ai.onnx`; here it is "".
- Sparse weights and constants become dense.
- Constants and the weights of bodies that lie in other files move into the model, so no library
  that loads it later opens a file that the model names. The graph's own weights stay there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from cnn.errors import ModelError
from cnn.operators.standard import STANDARD_DOMAINS
from cnn.reading.weights import (
    MOST_DIMENSIONS,
    Contents,
    called,
    is_external,
    messages,
    stored_bytes,
    with_own_data,
)

_MOST_BYTES = 1 << 30
"""The most that tensors may take that move into the model or become dense, each and all together. A
few bytes can name a shape of any size, and a thousand tensors the same place of a file.
"""


def normalise(proto: onnx.ModelProto, external: Mapping[str, Contents], label: str) -> None:
    """Rewrite `proto` in place; `external` has the files that its tensors lie in.

    Raises `ModelError` for a tensor that is not in its file, and for a sparse one that is damaged.
    """
    _spell_domains(proto)
    graph = proto.graph
    room = _Room()
    for part in (*graph.node, *graph.sparse_initializer, *proto.functions, *proto.training_info):
        for message in messages(part):
            if isinstance(message, onnx.TensorProto) and is_external(message):
                what = called(message, label)
                room.take(stored_bytes(message, what), what)
                message.CopyFrom(with_own_data(message, external, what))
    for message in list(messages(proto)):
        if isinstance(message, onnx.GraphProto):
            for sparse in message.sparse_initializer:
                message.initializer.append(_dense(sparse, called(sparse.values, label), room))
            message.ClearField("sparse_initializer")
        elif isinstance(message, onnx.AttributeProto) and message.HasField("sparse_tensor"):
            tensor = _dense(message.sparse_tensor, f"{label}: a constant", room)
            name = "value" if message.name == "sparse_value" else message.name
            message.Clear()
            message.name, message.type = name, onnx.AttributeProto.TENSOR
            message.t.CopyFrom(tensor)


def _spell_domains(proto: onnx.ModelProto) -> None:
    for message in messages(proto):
        is_named = isinstance(message, onnx.NodeProto | onnx.FunctionProto)
        if is_named and message.domain in STANDARD_DOMAINS:
            message.domain = ""
        if isinstance(message, onnx.ModelProto | onnx.FunctionProto):
            newest: dict[str, int] = {}
            for entry in message.opset_import:
                domain = "" if entry.domain in STANDARD_DOMAINS else entry.domain
                newest[domain] = max(entry.version, newest.get(domain, 0))
            del message.opset_import[:]
            for domain, version in newest.items():
                message.opset_import.add(domain=domain, version=version)


class _Room:
    """Counts what is moved into a model."""

    def __init__(self) -> None:
        self._left_bytes = _MOST_BYTES

    def take(self, size_bytes: int, what: str) -> None:
        """Raise `ModelError` if a tensor of this size is too much."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            raise ModelError(
                f"{what} is sparse or belongs to a constant or a body, and with it such tensors "
                f"take more than {_MOST_BYTES} bytes; export it as a dense weight of the graph"
            )


def _dense(sparse: onnx.SparseTensorProto, what: str, room: _Room) -> onnx.TensorProto:
    """Return a sparse tensor as a dense one of the same name."""
    shape = tuple(sparse.dims)
    try:
        values = numpy_helper.to_array(sparse.values).reshape(-1)
        indices = numpy_helper.to_array(sparse.indices).astype(np.int64)
        if len(shape) > MOST_DIMENSIONS or any(size < 0 for size in shape):
            raise ValueError("no possible shape")
        room.take(math.prod(shape) * values.dtype.itemsize, what)
        if indices.ndim == 2:
            indices = np.ravel_multi_index(tuple(indices.T), shape)
        dense = np.zeros(math.prod(shape), values.dtype)
        if indices.ndim != 1 or np.any(indices < 0):
            raise ValueError("no possible places")
        dense[indices] = np.broadcast_to(values, indices.shape)
        if len(values) != len(indices):
            raise ValueError("other places than values")
    except (TypeError, ValueError, IndexError) as error:
        raise ModelError(
            f"{what} is sparse, and its values do not fit its shape; export the model again"
        ) from error
    return numpy_helper.from_array(dense.reshape(shape), sparse.values.name)
