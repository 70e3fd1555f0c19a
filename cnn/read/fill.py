"""Weights for files that hold none.

Architectures are published with their weights left out: each weight is a `ConstantOfShape` node
with a constant shape. A file whose kernels are made so is *weightless* and gets values drawn from a
seed; which values suit which weight is decided in `cnn.operators.roles`. A value depends on the
seed and on the tensor's name, not on the order of tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import onnx

from cnn.operators.roles import MissingWeight, Role, Roles
from cnn.read.weights import Array, declare, names_read


def fill(proto: onnx.ModelProto, weights: dict[str, Array], seed: int) -> bool:
    """Add the missing weights of `proto` to `weights`, in place.

    False, and no change, if the model has weights of its own.
    """
    probe = Roles(proto.graph, weights, {})
    if not any(name in probe.missing and role.is_kernel for name, role in probe.found.items()):
        return False
    roles = Roles(proto.graph, weights, _inferred_shapes(proto, weights))
    for name, missing in (*roles.missing.items(), *roles.leftover.items()):
        if name in roles.found:
            weights[name] = draw(seed, name, missing, roles.found[name])
    kept = [x for x in proto.graph.node if not weights.keys() & set(x.output)]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    for name in weights.keys() - set(names_read(proto.graph)):  # the shapes of what is filled now
        del weights[name]
    return True


def draw(seed: int, name: str, missing: MissingWeight, role: Role) -> Array:
    """Values for a missing weight that depend on (seed, name) alone."""
    if role.sigma == 0:
        return np.full(missing.shape, role.mean, missing.dtype)
    words = np.frombuffer(hashlib.sha256(f"{seed}\0{name}".encode()).digest(), "<u4")
    generator = np.random.Generator(np.random.SFC64(np.random.SeedSequence(words.tolist())))
    values = generator.standard_normal(missing.shape, np.float32)
    values *= np.float32(role.sigma)
    values += np.float32(role.mean)
    return values.astype(missing.dtype, copy=False)


def _inferred_shapes(
    proto: onnx.ModelProto, weights: Mapping[str, Array]
) -> Mapping[str, tuple[int, ...]]:
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    declare(whole.graph, weights)
    inferred = onnx.shape_inference.infer_shapes(whole, data_prop=True)
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in inferred.graph.value_info
    }
