"""Infer the shape and dtype of every tensor of a simplified model.

A tensor whose shape depends on the data gets an *assumed* shape, with which memory and traffic are
calculated. Where the operator has a limit (`NonZero`: all elements; `NonMaxSuppression`: its limit
per class), that limit is assumed. Otherwise ONNX infers the shape from the assumed shapes of the
inputs. Each axis that is still unknown gets `GUESS` elements: detectors return some hundred boxes,
and a few kilobytes do not change a plan. Assumed shapes are only for these calculations;
`nodes.core.deployment` bounds what may be sent.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, shape_inference

from cnn.errors import ModelError
from cnn.network import Array, Tensor, weight_tensors
from cnn.operators import contrib
from cnn.operators.attributes import integer
from cnn.operators.bodies import has_body
from cnn.operators.standard import standard_opset
from cnn.operators.supported import describe, end_before, numpy_dtype
from cnn.reading.weights import INLINE_BYTES, declare, described, tensor
from cnn.simplify import Simplified

_STEP = 32
"""A network that joins tensors of several resolutions takes sizes that are multiples of two to the
number of halvings, which is five in most backbones."""

GUESS = 100
"""Elements along an axis of unknown length."""


def assumed_shape(
    node: onnx.NodeProto,
    output: str,
    inferred: Sequence[int | None] | None,
    known: Mapping[str, Tensor],
    weights: Mapping[str, Array],
    opset: int,
) -> tuple[int, ...]:
    """Return the shape to assume for an output of `node`; no axis is empty.

    `inferred` has the known axes and None for the others; it is None if even their number is
    unknown.
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
    """Return what ONNX infers from the assumed shapes of the inputs."""
    if not onnx.defs.has(node.op_type, opset, node.domain):
        return None
    names = [name for name in node.input if name]
    if any(name not in known for name in names) or has_body(node):
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


def infer(model: Simplified, label: str) -> dict[str, Tensor]:
    """Describe every activation and constant by name, except sequences and other non-tensors.

    Weights take part by shape only, so a model of any size can be inferred. Raises `ModelError`
    that names the first layer whose output is not numeric, or has no type that can be inferred.
    """
    weights = weight_tensors(model.weights)
    known = dict(weights)
    values = _inferred(model, label)
    for value in model.inputs:
        known[value.name] = _tensor(value, label, f"input {value.name!r}")
    activations: set[str] = set()
    opset = standard_opset(model.opset_import)
    for node in model.nodes:
        for name in filter(None, node.output):
            what = f"an output of {describe(node)}"
            found = values.get(name, [])
            static = next(filter(_static, found), None)
            if static is not None:
                known[name] = _tensor(static, label, what)
            elif (dtype := _dtype(node, found, activations, label)) is not None:
                axes = _axes(found)
                shape = assumed_shape(node, name, axes, known, model.weights, opset)
                known[name] = Tensor(name, shape, dtype, varies=True)
        activations.update(node.output)
        if node.op_type == "Conv":
            _check_channels(node, known, label)
    for value in model.outputs:
        made = values.get(value.name, [])
        if value.name not in known and made:
            _tensor(made[0], label, f"output {value.name!r}")
    return known


def _inferred(model: Simplified, label: str) -> Mapping[str, list[onnx.ValueInfoProto]]:
    """Return, by tensor name, what ONNX infers, followed by what simplification found."""
    graph = helper.make_graph(model.nodes, "network", model.inputs, model.outputs)
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    declare(graph, model.weights)
    own = {name for node in model.nodes if contrib.is_known(node) for name in node.output}
    graph.value_info.extend(value for value in model.described if value.name in own)
    proto = helper.make_model(graph, opset_imports=model.opset_import)
    try:
        inferred = onnx.shape_inference.infer_shapes(
            proto, check_type=True, strict_mode=True, data_prop=True
        ).graph
    except (onnx.shape_inference.InferenceError, ValueError) as error:
        if any(sign in str(error) for sign in _LOST_IN_BODIES):  # the rest can be inferred
            return _by_name(onnx.shape_inference.infer_shapes(proto, data_prop=True).graph, model)
        raise ModelError(f"{label}: {_contradiction(model, str(error))}") from error
    return _by_name(inferred, model)


def _by_name(
    inferred: onnx.GraphProto, model: Simplified
) -> Mapping[str, list[onnx.ValueInfoProto]]:
    found: dict[str, list[onnx.ValueInfoProto]] = {}
    for value in (*inferred.value_info, *inferred.output, *model.described, *model.outputs):
        found.setdefault(value.name, []).append(value)
    return found


_LOST_IN_BODIES = ("expected to have type but instead is null", "already exists")
"""Parts of what ONNX's strict inference says where it loses track of bodies in bodies."""

_PLACE = re.compile(r"\(op_type: ?(?P<operator>\w+)(?:, node name: (?P<name>[^)]*))?\)")
"""How ONNX's inference names the operator at which it fails."""


def _contradiction(model: Simplified, error: str) -> str:
    """Say at which operator shapes contradict each other, and which input sizes may be wrong."""
    reason = error.strip().splitlines()[-1]
    if (place := _PLACE.search(error)) is None:
        return f"the shapes of the model contradict each other: {reason}"
    named = (place["operator"], place["name"] or "")
    node = next((node for node in model.nodes if (node.op_type, node.name) == named), None)
    if node is None or has_body(node):
        return f"the shapes of the model contradict each other: {reason}"
    known = {value.name: value for value in (*model.described, *model.inputs)}
    known |= {name: described(name, array) for name, array in model.weights.items()}
    shapes = [str(_sizes(known[name])) for name in node.input if name in known]
    said = f"{describe(node)} cannot take tensors of the shapes {' and '.join(shapes)}"
    sizes = [(value.name, _sizes(value)) for value in model.inputs]
    uneven = sorted({x for _, shape in sizes for x in shape[1:] if x > _STEP and x % _STEP})
    if not uneven:
        return f"{said}: {reason}"
    lower, upper = ([_STEP * (x // _STEP + up) for x in uneven] for up in (0, 1))
    given = ", ".join(f"{name} {shape}" for name, shape in sizes)
    return (
        f"{said} (with the input {given}); a network that halves its resolution five times needs "
        f"sizes that are multiples of {_STEP}: write an input_shape with {_listed(lower)} or "
        f"{_listed(upper)} in place of {_listed(uneven)}"
    )


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))


def _sizes(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _dtype(
    node: onnx.NodeProto,
    values: Sequence[onnx.ValueInfoProto],
    activations: Container[str],
    label: str,
) -> str | None:
    """Return the dtype of an output of `node` without a static shape; None if it is no tensor."""
    tensors = [value.type.tensor_type for value in values if value.type.HasField("tensor_type")]
    if values and not tensors and any(value.type.WhichOneof("value") for value in values):
        return None
    types = [tensor.elem_type for tensor in tensors if tensor.elem_type]
    if not types:
        raise ModelError(
            f"{label}: the type and shape of an output of {describe(node)} cannot be inferred; "
            f"export the model with fixed shapes, or {end_before(node, activations)}"
        )
    return numpy_dtype(types[0], f"{label}: an output of {describe(node)}")


def _axes(values: Sequence[onnx.ValueInfoProto]) -> list[int | None] | None:
    """Return the axes, None for each unknown one; None if even their number is unknown."""
    for value in values:
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    return None


def _check_channels(node: onnx.NodeProto, known: Mapping[str, Tensor], label: str) -> None:
    """Refuse a wrong number of channels: ONNX's inference accepts it, and every engine fails."""
    if any(name not in known or known[name].varies for name in node.input[:2]):
        return
    group = integer(node, "group", 1)
    source, kernel = known[node.input[0]].shape, known[node.input[1]].shape
    if source[1] != kernel[1] * group:
        raise ModelError(
            f"{label}: {describe(node)} expects {kernel[1] * group} channels but gets {source[1]} "
            f"(its input is {list(source)}); check the order of the axes in input_shape"
        )


def _static(value: onnx.ValueInfoProto) -> bool:
    tensor = value.type.tensor_type
    return (
        value.type.HasField("tensor_type")
        and tensor.HasField("shape")
        and tensor.elem_type != onnx.TensorProto.UNDEFINED
        and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    )


def _tensor(value: onnx.ValueInfoProto, label: str, what: str) -> Tensor:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"{label}: {what} is of the type {str(kind).removesuffix('_type')}; only tensors of "
            "numbers can travel between devices: name others as `outputs` of the model"
        )
    tensor = value.type.tensor_type
    dtype = numpy_dtype(tensor.elem_type, f"{label}: {what}")
    return Tensor(value.name, tuple(dim.dim_value for dim in tensor.shape.dim), dtype)
