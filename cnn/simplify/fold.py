"""Fold constants: one pass in topological order that infers the type of every output.

Input shapes are static, so nearly all shapes follow, operator by operator, from ONNX's shape
inference. An operator that reads only constants is executed; `Shape` and `Size` are constants once
the shape is known. So the arithmetic that exporters write for open sizes folds away in the order in
which it would be computed. An `If` with a constant condition is replaced by its branch, and a
`Loop` or `Scan` by its iterations where their number is known (`unroll`).

Operators are executed by ONNX's reference implementation. It defines what operators mean, and it is
slow: for some operators it works in Python, one element at a time. So an operator is executed only
where that is quick; others stay with the layer that reads their result.

ONNX's inference and ONNX Runtime can disagree on the size of a resized tensor, ⌊size · scale⌋. The
scale 2.3 is 2.29999995 in single precision: ONNX Runtime multiplies by 10 in single precision and
gets 23, inference gets 22. `round_up_scales` removes the disagreement.
"""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from cnn.network import Array
from cnn.operators import contrib
from cnn.operators.attributes import attribute, integer, integers
from cnn.operators.bodies import has_body
from cnn.operators.standard import QUANTISERS, STANDARD_DOMAINS
from cnn.operators.supported import RANDOM
from cnn.reading.weights import INLINE_BYTES, described, tensor
from cnn.simplify.graph import OperatorGraph
from cnn.simplify.unroll import Unroller, expand_sequence_operator, inlined_branch

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
"""Operators that the reference implementation executes by NumPy, on whole arrays."""

_SELECTING = frozenset({"Compress", "NonZero", "Unique"})
"""Operators whose output size depends on the data but does not exceed their input's.

In a damaged file, other operators of unknown output size could request any amount of memory.
"""

_OLDEST_REFERENCE = {"DequantizeLinear": 19}
"""Operator → the oldest operator set for which the reference implementation has it. For the types
that NumPy has, the operator meant the same before."""

_LARGEST_BYTES = 64 << 20
_LARGEST_SLOW_BYTES = 16 << 10
_GROWTH = 16 << 10
"""Bytes. A result that is larger than this and than its inputs is not stored: the operator is
smaller.
"""


def evaluate(
    graph: OperatorGraph,
    node: onnx.NodeProto,
    arrays: Mapping[str, Array],
    *,
    is_wanted: bool = False,
) -> dict[str, Array] | None:
    """Execute `node` on these inputs; return its outputs, or None if that is slow or impossible.

    If `is_wanted`, the result itself is needed, so it may take longer and be larger than its
    inputs.
    """
    if node.op_type in RANDOM or node.domain not in STANDARD_DOMAINS:
        return None
    if has_body(node):
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
    results = _run_reference(graph, node, arrays)
    return results if results is not None and _is_as_inferred(graph, results) else None


def _run_reference(
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
    oldest = _OLDEST_REFERENCE.get(node.op_type, 0)
    imports = [helper.make_opsetid(x.domain, max(x.version, oldest)) for x in graph.opset_import]
    model = helper.make_model(body, opset_imports=imports, ir_version=graph.ir_version)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, dict(arrays))
    except Exception:  # noqa: BLE001 - whatever it lacks; the operator stays, and an engine runs it
        return None
    found = {name: np.asarray(value) for name, value in zip(names, results, strict=True)}
    return found if all(array.dtype.kind in "fiub" for array in found.values()) else None


def _is_as_inferred(graph: OperatorGraph, results: Mapping[str, Array]) -> bool:
    """Whether dtypes and shapes match those that ONNX inferred, where it did."""
    for name, array in results.items():
        kind, shape = graph.element_type(name), graph.shape(name)
        if kind not in (onnx.TensorProto.UNDEFINED, helper.np_dtype_to_tensor_dtype(array.dtype)):
            return False
        if shape is not None and shape != array.shape:
            return False
    return True


def _made_bytes(graph: OperatorGraph, node: onnx.NodeProto) -> int | None:
    """Return the bytes of a node's outputs; None if a shape is unknown."""
    total = 0
    for name in filter(None, node.output):
        shape = graph.shape(name)
        if shape is None:
            return None
        kind = graph.element_type(name) or onnx.TensorProto.DOUBLE
        total += math.prod(shape) * np.dtype(helper.tensor_dtype_to_np_dtype(kind)).itemsize
    return total


def _range_bytes(start: Array, limit: Array, delta: Array) -> int | None:
    """Return the bytes of a `Range`.

    ONNX infers no shape where a bound is a list of one number, which engines accept as that number.
    """
    if any(x.size != 1 for x in (start, limit, delta)) or not delta.any():
        return None
    length = (float(limit.item()) - float(start.item())) / float(delta.item())
    return math.ceil(max(length, 0.0)) * start.itemsize if math.isfinite(length) else None


_PLACES = {"Upsample": 1, "Resize": 2}
"""Operator → index of its scales; before operator set 11, index 1 for both."""


def round_up_scales(graph: OperatorGraph, node: onnx.NodeProto) -> None:
    """Increase constant scales to the next number for which inference agrees with ONNX Runtime."""
    if node.op_type not in _PLACES:
        return
    place = _PLACES[node.op_type] if graph.opset >= 11 else 1
    shape, scales = graph.shape(node.input[0]), graph.constant(node, place)
    if shape is None or scales is None:
        return
    shape = tuple(shape[axis] for axis in integers(node, "axes", range(len(shape))))
    if len(shape) != scales.size:
        return
    settled = [_settled(np.float32(x), n) for x, n in zip(scales.reshape(-1), shape, strict=True)]
    if not np.array_equal(settled, scales.reshape(-1)):
        array = np.array(settled, np.float32)
        node.input[place] = graph.add_constant(f"{node.output[0]}_scales", array)


def _settled(scale: np.float32, size: int) -> np.float32:
    made = np.floor(np.float32(size) * scale)
    while np.floor(float(scale) * size) < made:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale


_NOT_EXECUTED = QUANTISERS | {"DynamicQuantizeLinear"}
"""Not executed on constants, so that a quantised weight stays small."""

_LIKE_FIRST_INPUT = frozenset({"GroupNormalization"})
"""Operators whose output has the type of their first input, which ONNX does not infer."""


def fold(graph: OperatorGraph) -> None:
    """Replace constant expressions by their values, and infer the tensors' types."""
    nodes, graph.nodes = graph.nodes, []
    unroller = Unroller(graph, lambda iteration: _fold(graph, iteration, unroller))
    _fold(graph, nodes, unroller)


def _fold(graph: OperatorGraph, nodes: Iterable[onnx.NodeProto], unroller: Unroller) -> None:
    """Add these nodes, or their values, to the graph."""
    left = deque(nodes)
    while left:
        node = left.popleft()
        if node.op_type == "If" and node.input[0] in graph.constants:
            branch = inlined_branch(graph, node)
            if branch is not None:
                left.extendleft(reversed(branch))
                continue
        if node.op_type in ("Loop", "Scan") and unroller.unroll(node):
            continue
        nodes_instead = expand_sequence_operator(graph, node)
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
    """Return the output of a `Constant`, or of `Shape` and `Size` where the shape is known."""
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
    """Return the value of a `Constant` that is a numeric tensor."""
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
    """Infer the types of a node's outputs; return their values if they are constant or empty."""
    round_up_scales(graph, node)
    _infer(graph, node)
    if (empty := _empty(graph, node)) is not None:
        return empty
    arrays = {name: graph.constants[name] for name in node.input if name in graph.constants}
    if not arrays.keys() >= set(filter(None, node.input)) or node.op_type in _NOT_EXECUTED:
        return None
    return evaluate(graph, node, arrays)


def _empty(graph: OperatorGraph, node: onnx.NodeProto) -> dict[str, Array] | None:
    """Return the outputs of a node if none has an element, because then their values are known."""
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
    """Record the types of the node's outputs, as far as ONNX infers them."""
    types = {name: graph.types[name] for name in node.input if name in graph.types}
    if not types.keys() >= set(filter(None, node.input)):
        return
    data = {
        name: tensor(name, graph.constants[name])
        for name in node.input
        if name in graph.constants and graph.constants[name].nbytes < INLINE_BYTES
    }
    is_standard = node.domain in STANDARD_DOMAINS
    if not is_standard or not onnx.defs.has(node.op_type, graph.opset, node.domain):
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
        return  # inference of the whole network reports it
    found.pop("", None)  # of an output that is left out
    graph.types.update(found)


def _inferred_by_function(
    graph: OperatorGraph,
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    data: Mapping[str, onnx.TensorProto],
) -> dict[str, onnx.TypeProto]:
    """Infer the types of operators that ONNX defines by others, and infers only within a model."""
    values = [helper.make_value_info(name, types[name]) for name in types if name not in data]
    made = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    body = helper.make_graph([node], "node", values, made, list(data.values()))
    model = helper.make_model(body, opset_imports=graph.opset_import, ir_version=graph.ir_version)
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    return {value.name: value.type for value in inferred.output if value.HasField("type")}
