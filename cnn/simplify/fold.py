"""Constant folding: one pass in topological order, in which every operator's outputs get a type.

Input shapes are static, so the shape of nearly everything follows, operator by operator, by ONNX's
own shape inference. An operator that only reads constants is carried out. One that only asks for a
shape or a size is a constant once the shape is known. So all arithmetic that exporters write for
sizes that were open folds away, and in the order in which it would be computed.

An `If` whose condition is constant is replaced by its branch, and a `Loop` or `Scan` by its
iterations where it is known how many there are (`unroll`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from cnn.operators import contrib
from cnn.read.weights import INLINE_BYTES, Array, tensor
from cnn.simplify.bodies import taken_branch
from cnn.simplify.evaluate import evaluate
from cnn.simplify.graph import OperatorGraph, attribute, integer
from cnn.simplify.scales import agree_on_scales
from cnn.simplify.sequences import without_sequences
from cnn.simplify.unroll import Unroller

_QUANTISERS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""A weight stays as small as it is."""

_LIKE_FIRST_INPUT = frozenset({"GroupNormalization"})
"""What they make has the type of their first input, which ONNX does not infer."""


def fold(graph: OperatorGraph) -> None:
    """Replace what is constant by its value, and give every tensor a type where that is known."""
    nodes, graph.nodes = graph.nodes, []
    unroller = Unroller(graph, lambda iteration: _fold(graph, iteration, unroller))
    _fold(graph, nodes, unroller)


def _fold(graph: OperatorGraph, nodes: Iterable[onnx.NodeProto], unroller: Unroller) -> None:
    """Add these nodes to the graph, or their values."""
    left = deque(nodes)
    while left:
        node = left.popleft()
        if node.op_type == "If" and node.input[0] in graph.constants:
            branch = taken_branch(graph, node)
            if branch is not None:
                left.extendleft(reversed(branch))
                continue
        if node.op_type in ("Loop", "Scan") and unroller.unroll(node):
            continue
        nodes_instead = without_sequences(graph, node)
        if nodes_instead is not None:
            left.extendleft(reversed(nodes_instead))
            continue
        known = _constants_of(graph, node)
        if known is None:
            known = _evaluated(graph, node)
        if known is None:
            graph.nodes.append(node)
            continue
        for name, array in known.items():
            graph.set_constant(name, array)


def _constants_of(graph: OperatorGraph, node: onnx.NodeProto) -> dict[str, Array] | None:
    """The outputs of `Constant`, and of `Shape` and `Size` where the shape is known."""
    if node.op_type == "Constant":
        array = _literal(node)
        return None if array is None else {node.output[0]: array}
    if node.op_type in ("Shape", "Size"):
        shape = graph.shape(node.input[0])
        if shape is not None:
            found = np.array(shape, np.int64)
            if node.op_type == "Size":
                found = np.array(found.prod(), np.int64)
            else:
                end = integer(node, "end", len(shape))
                found = found[_bounded(integer(node, "start", 0), shape) : _bounded(end, shape)]
            return {node.output[0]: found}
    return None


def _bounded(index: int, shape: tuple[int, ...]) -> int:
    return min(max(index + len(shape) if index < 0 else index, 0), len(shape))


def _literal(node: onnx.NodeProto) -> Array | None:
    """The value of a `Constant` that is a tensor of numbers."""
    for name, dtype in (("float", np.float32), ("int", np.int64)):
        for plural in ("", "s"):
            value = attribute(node, f"value_{name}{plural}")
            if value is not None:
                return np.array(value, dtype)
    value = attribute(node, "value")
    if not isinstance(value, onnx.TensorProto) or value.data_type == onnx.TensorProto.STRING:
        return None
    try:
        array = numpy_helper.to_array(value)
    except (TypeError, ValueError):
        return None
    return array if array.dtype.kind in "fiub" else None


def _evaluated(graph: OperatorGraph, node: onnx.NodeProto) -> dict[str, Array] | None:
    """The outputs of a node that only reads constants, or makes nothing but empty tensors; else
    its types are noted."""
    agree_on_scales(graph, node)
    _infer(graph, node)
    if (empty := _empty(graph, node)) is not None:
        return empty
    arrays = {name: graph.constants[name] for name in node.input if name in graph.constants}
    if not arrays.keys() >= set(filter(None, node.input)) or node.op_type in _QUANTISERS:
        return None
    return evaluate(graph, node, arrays)


def _empty(graph: OperatorGraph, node: onnx.NodeProto) -> dict[str, Array] | None:
    """The outputs of a node if none has an element: there is one value that each can have."""
    found = {}
    for name in filter(None, node.output):
        shape, kind = graph.shape(name), graph.element_type(name)
        if shape is None or 0 not in shape or kind == onnx.TensorProto.UNDEFINED:
            return None
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        if dtype.kind not in "fiub":
            return None
        found[name] = np.empty(shape, dtype)
    return found


def _infer(graph: OperatorGraph, node: onnx.NodeProto) -> None:
    """Note the types of the node's outputs, as far as ONNX infers them."""
    types = {name: graph.types[name] for name in node.input if name in graph.types}
    if not types.keys() >= set(filter(None, node.input)):
        return
    data = {
        name: tensor(name, graph.constants[name])
        for name in node.input
        if name in graph.constants and graph.constants[name].nbytes < INLINE_BYTES
    }
    if not onnx.defs.has(node.op_type, graph.opset, node.domain):
        if contrib.is_known(node):
            graph.types.update(contrib.infer(node, types))
        return
    schema = onnx.defs.get_schema(node.op_type, graph.opset, node.domain)
    try:
        if node.op_type in _LIKE_FIRST_INPUT:
            found = {node.output[0]: types[node.input[0]]}
        elif schema.has_type_and_shape_inference_function:
            found = shape_inference.infer_node_outputs(
                schema, node, types, data, None, list(graph.opset_import), graph.ir_version
            )
        else:
            found = _inferred_by_function(graph, node, types, data)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return  # the whole network's inference says what is wrong with it
    graph.types.update(found)


def _inferred_by_function(
    graph: OperatorGraph,
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
) -> dict[str, onnx.TypeProto]:
    """For operators that ONNX defines by others, and infers only within a model."""
    values = [helper.make_value_info(name, types[name]) for name in types if name not in data]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    body = helper.make_graph([node], "node", values, made, list(data.values()))
    model = helper.make_model(body, opset_imports=graph.opset_import, ir_version=graph.ir_version)
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    return {value.name: value.type for value in inferred.output if value.HasField("type")}
