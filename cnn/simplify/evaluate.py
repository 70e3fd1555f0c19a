"""Carrying out one operator on constants, by ONNX's reference implementation.

It defines what operators mean, and is slow: in Python, an element at a time for some. So an
operator is carried out only where that takes a moment; others stay with the layer that reads their
result.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from cnn.operators.supported import RANDOM, STANDARD_DOMAINS
from cnn.read.weights import Array, described
from cnn.simplify.graph import OperatorGraph

_MOVING = frozenset(
    {"Cast", "CastLike", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Gather"}
    | {"GatherElements", "GatherND", "Identity", "Pad", "Range", "Reshape", "ScatterND", "Shape"}
    | {"Size", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"}
)
_ARITHMETIC = frozenset(
    {"Abs", "Add", "And", "Ceil", "Clip", "Cos", "CumSum", "Div", "Equal", "Exp", "Floor"}
    | {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul"}
    | {"Neg", "Not", "Or", "Pow", "Reciprocal", "ReduceMax", "ReduceMin", "ReduceProd"}
    | {"ReduceSum", "Round", "Sigmoid", "Sign", "Sin", "Softmax", "Sqrt", "Sub", "Sum", "Tanh"}
)
_BY_NUMPY = _MOVING | _ARITHMETIC
"""Operators that the reference implementation leaves to NumPy, whole arrays at a time."""

_SELECTING = frozenset({"Compress", "NonZero", "Unique"})
"""Operators whose output has a size that depends on the data, but is not larger than their input's.
Of others whose size nobody knows beforehand, a damaged file may ask for any."""

_LARGEST_BYTES = 64 << 20
_LARGEST_SLOW_BYTES = 16 << 10
_GROWTH = 16 << 10
"""Bytes; what is larger than that and than what it is made of stays an operator, being smaller."""


def evaluate(
    graph: OperatorGraph,
    node: onnx.NodeProto,
    arrays: Mapping[str, Array],
    *,
    is_wanted: bool = False,
) -> dict[str, Array] | None:
    """The outputs of `node` for these inputs; None if that takes long or cannot be done.

    `is_wanted`: the result itself is asked for, so it may take longer, and be larger than what it
    is made of.
    """
    if node.op_type in RANDOM or node.domain not in STANDARD_DOMAINS:
        return None
    if any(
        x.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for x in node.attribute
    ):
        return None
    read = sum(array.nbytes for array in arrays.values())
    made = _made_bytes(graph, node)
    if made is None and node.op_type == "Range":
        made = _range_bytes(*(arrays[name] for name in node.input))
    if made is None and node.op_type in _SELECTING:
        made = read * np.dtype(np.int64).itemsize
    if made is None:
        return None
    is_quick = is_wanted or node.op_type in _BY_NUMPY
    if read + made > (_LARGEST_BYTES if is_quick else _LARGEST_SLOW_BYTES):
        return None
    if not is_wanted and made > _GROWTH and made > 2 * read:
        return None
    results = _carried_out(graph, node, arrays)
    return results if results is not None and _is_as_inferred(graph, results) else None


def _carried_out(
    graph: OperatorGraph, node: onnx.NodeProto, arrays: Mapping[str, Array]
) -> dict[str, Array] | None:
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - most networks need none of it

    names = [name for name in node.output if name]
    body = helper.make_graph(
        [node],
        "node",
        [described(name, array) for name, array in arrays.items()],
        [helper.make_value_info(name, onnx.TypeProto()) for name in names],
    )
    model = helper.make_model(body, opset_imports=graph.opset_import, ir_version=graph.ir_version)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(arrays))
    except Exception:  # noqa: BLE001 - whatever it lacks; the operator stays, and an engine runs it
        return None
    found = {name: np.asarray(value) for name, value in zip(names, results, strict=True)}
    return found if all(array.dtype.kind in "fiub" for array in found.values()) else None


def _is_as_inferred(graph: OperatorGraph, results: Mapping[str, Array]) -> bool:
    """Whether dtypes and shapes are those that ONNX's inference has found, where it has."""
    for name, array in results.items():
        kind, shape = graph.element_type(name), graph.shape(name)
        if kind not in (onnx.TensorProto.UNDEFINED, helper.np_dtype_to_tensor_dtype(array.dtype)):
            return False
        if shape is not None and shape != array.shape:
            return False
    return True


def _made_bytes(graph: OperatorGraph, node: onnx.NodeProto) -> int | None:
    """The bytes of what a node makes; None if a shape is not known."""
    total = 0
    for name in filter(None, node.output):
        shape = graph.shape(name)
        if shape is None:
            return None
        kind = graph.element_type(name) or onnx.TensorProto.DOUBLE
        total += math.prod(shape) * np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize
    return total


def _range_bytes(start: Array, limit: Array, delta: Array) -> int | None:
    """The bytes of a range; ONNX infers none where a bound is a list of one number, which engines
    take for that number."""
    if any(x.size != 1 for x in (start, limit, delta)) or not delta.any():
        return None
    length = (float(limit.item()) - float(start.item())) / float(delta.item())
    return math.ceil(max(length, 0.0)) * start.itemsize if math.isfinite(length) else None
