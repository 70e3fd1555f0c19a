"""The shape that memory and traffic are reckoned with, of a tensor whose shape varies by frame.

Where the operator says how many there can be (`NonZero`: all elements; `NonMaxSuppression`: its
limit for each class), that many. Otherwise ONNX's inference is asked again, as if every input had
the shape that it is reckoned with. What it leaves open has `GUESS` elements: detectors give some
hundred boxes, and a few kilobytes do not change a plan.

This is for figures only. What may be sent is bounded by `nodes.core.deployment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, shape_inference

from cnn.network import Tensor
from cnn.read.bodies import bodies
from cnn.read.weights import INLINE_BYTES, Array, tensor

GUESS = 100
"""Elements along an axis of which nothing is known."""


def reckoned_shape(
    node: onnx.NodeProto,
    output: str,
    inferred: Sequence[int | None] | None,
    known: Mapping[str, Tensor],
    weights: Mapping[str, Array],
    opset: int,
) -> tuple[int, ...]:
    """The shape to reckon with for an output of `node`; no axis is empty.

    `inferred` has the axes that are known, and is None if not even their number is.
    """
    dims = _of_operator(node, known, weights) or _from_largest(node, output, known, weights, opset)
    if dims is None or (inferred is not None and len(dims) != len(inferred)):
        dims = (None,) if inferred is None else inferred
    return tuple(GUESS if size is None else max(size, 1) for size in dims)


def _of_operator(
    node: onnx.NodeProto, known: Mapping[str, Tensor], weights: Mapping[str, Array]
) -> Sequence[int | None] | None:
    source = known.get(node.input[0]) if node.input else None
    if source is None or node.domain:
        return None
    if node.op_type == "NonZero":
        return len(source.shape), source.elements
    if node.op_type == "NonMaxSuppression" and len(source.shape) == 3:
        frames, boxes, _ = source.shape
        scores = known.get(node.input[1])
        limit = weights.get(node.input[2]) if len(node.input) > 2 else None
        if scores is None or len(scores.shape) != 3:
            return None
        most = boxes if limit is None else min(boxes, int(np.asarray(limit).reshape(-1)[0]))
        return frames * scores.shape[1] * most, 3
    return None


def _from_largest(
    node: onnx.NodeProto,
    output: str,
    known: Mapping[str, Tensor],
    weights: Mapping[str, Array],
    opset: int,
) -> Sequence[int | None] | None:
    """What ONNX infers for inputs of the shapes that they are reckoned with."""
    if not onnx.defs.has(node.op_type, opset, node.domain):
        return None
    names = [name for name in node.input if name]
    if any(name not in known for name in names) or any(True for _ in bodies(node)):
        return None
    types = {
        name: helper.make_tensor_type_proto(
            helper.np_dtype_to_tensor_dtype(np.dtype(known[name].dtype)), known[name].shape
        )
        for name in names
    }
    data = {
        name: tensor(name, weights[name])
        for name in names
        if name in weights and weights[name].nbytes < INLINE_BYTES
    }
    try:
        found = shape_inference.infer_node_outputs(
            onnx.defs.get_schema(node.op_type, opset, node.domain),
            node,
            types,
            data,
            None,
            [helper.make_opsetid("", opset)],
        ).get(output)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return None
    if found is None or not found.HasField("tensor_type"):
        return None
    if not found.tensor_type.HasField("shape"):
        return None
    return [x.dim_value if x.HasField("dim_value") else None for x in found.tensor_type.shape.dim]
