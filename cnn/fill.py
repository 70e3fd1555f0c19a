"""Weights for files that hold none.

Architectures are published with their weights left out: each weight is a `ConstantOfShape` node
with a constant shape. A file whose kernels are made so is *weightless* and gets values drawn from a
seed; which values suit which weight is decided in `cnn.roles`. A value depends on the seed and on
the tensor's name, not on the order of tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from cnn.roles import Missing, Role, Roles


def fill(proto: onnx.ModelProto, seed: int) -> bool:
    """Replace the missing weights of `proto` in place; False (and no change) if it has its own."""
    if not any(role.is_kernel for role in Roles(proto.graph, {}).found.values()):
        return False
    roles = Roles(proto.graph, _inferred_shapes(proto))
    for tensor in proto.graph.initializer:
        if tensor.name in roles.leftover:
            _set(tensor, seed, roles.leftover[tensor.name], roles.found[tensor.name])
    kept = []
    for node in proto.graph.node:
        name = node.output[0] if node.output else ""
        if name in roles.missing and name in roles.found:
            tensor = proto.graph.initializer.add(name=name)
            _set(tensor, seed, roles.missing[name], roles.found[name])
        else:
            kept.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    _drop_unread(proto.graph)
    return True


def draw(seed: int, name: str, missing: Missing, role: Role) -> NDArray[np.generic]:
    """Values for a missing weight that depend on (seed, name) alone."""
    if role.sigma == 0:
        return np.full(missing.shape, role.mean, missing.dtype)
    words = np.frombuffer(hashlib.sha256(f"{seed}\0{name}".encode()).digest(), "<u4")
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))
    values = generator.standard_normal(missing.shape, np.float32)
    values *= np.float32(role.sigma)
    values += np.float32(role.mean)
    return values.astype(missing.dtype, copy=False)


def _set(tensor: onnx.TensorProto, seed: int, missing: Missing, role: Role) -> None:
    values = draw(seed, tensor.name, missing, role)
    name = tensor.name
    tensor.Clear()
    tensor.name = name
    tensor.dims.extend(values.shape)
    tensor.data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor.raw_data = values.tobytes()


def _inferred_shapes(proto: onnx.ModelProto) -> Mapping[str, tuple[int, ...]]:
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.value_info
    }


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Remove the initialisers that held the shapes of what is filled now."""
    read = {name for node in graph.node for name in node.input}
    read |= {output.name for output in graph.output}
    unread = [i for i, tensor in enumerate(graph.initializer) if tensor.name not in read]
    for index in reversed(unread):
        del graph.initializer[index]
