"""Static shapes and types of every tensor of a simplified model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from cnn.errors import ModelError
from cnn.network import Tensor
from cnn.operators import contrib
from cnn.operators.supported import STANDARD_DOMAINS, describe, numpy_dtype
from cnn.read.varying import reckoned_shape
from cnn.read.weights import declare
from cnn.simplify import Simplified


def infer(model: Simplified, label: str) -> dict[str, Tensor]:
    """Describe every activation and constant by name; what is no tensor, such as a sequence, is
    left out.

    Weights take part by shape only, so a model of any size can be inferred. Raises `ModelError`
    naming the first layer whose output holds no numbers, or has a type that nobody knows.
    """
    weights = {
        name: Tensor(name, tuple(array.shape), array.dtype.name)
        for name, array in model.weights.items()
    }
    known = dict(weights)
    values = _inferred(model, label)
    for value in model.inputs:
        known[value.name] = _tensor(value, label, f"input {value.name!r}")
    opset = max(x.version for x in model.opset_import if x.domain in STANDARD_DOMAINS)
    for node in model.nodes:
        for name in filter(None, node.output):
            what = f"an output of {describe(node)}"
            found = values.get(name, [])
            static = next(filter(_static, found), None)
            if static is not None:
                known[name] = _tensor(static, label, what)
            elif (dtype := _dtype(found, label, what)) is not None:
                axes = _axes(found)
                shape = reckoned_shape(node, name, axes, known, model.weights, opset)
                known[name] = Tensor(name, shape, dtype, varies=True)
        if node.op_type == "Conv":
            _check_channels(node, known, label)
    for value in model.outputs:
        made = values.get(value.name, [])
        if value.name not in known and made:
            _tensor(made[0], label, f"output {value.name!r}")
    return known


def _inferred(model: Simplified, label: str) -> Mapping[str, list[onnx.ValueInfoProto]]:
    """By tensor name, what ONNX infers and after it what simplification has found."""
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
    except onnx.shape_inference.InferenceError as error:
        reason = str(error).strip().splitlines()[-1]
        raise ModelError(
            f"{label}: the shapes of the model contradict each other: {reason}"
        ) from error
    found: dict[str, list[onnx.ValueInfoProto]] = {}
    for value in (*inferred.value_info, *inferred.output, *model.described, *model.outputs):
        found.setdefault(value.name, []).append(value)
    return found


def _dtype(values: Sequence[onnx.ValueInfoProto], label: str, what: str) -> str | None:
    """The dtype of a tensor without a static shape; None for what is no tensor."""
    tensors = [value.type.tensor_type for value in values if value.type.HasField("tensor_type")]
    if values and not tensors and any(value.type.WhichOneof("value") for value in values):
        return None
    types = [tensor.elem_type for tensor in tensors if tensor.elem_type]
    if not types:
        raise ModelError(
            f"{label}: the type and shape of {what} cannot be inferred; cut this operator and what "
            "follows it off the model, or export the model with fixed shapes"
        )
    return numpy_dtype(types[0], f"{label}: {what}")


def _axes(values: Sequence[onnx.ValueInfoProto]) -> list[int | None] | None:
    """The axes of a tensor, None for those that are not known; None if nothing is."""
    for value in values:
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    return None


def _check_channels(node: onnx.NodeProto, known: Mapping[str, Tensor], label: str) -> None:
    """What ONNX's inference lets pass and every engine refuses: another number of channels."""
    if any(name not in known or known[name].varies for name in node.input[:2]):
        return
    group = next((x.i for x in node.attribute if x.name == "group"), 1)
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
            f"{label}: {what} is {str(kind).removesuffix('_type')}, not a tensor; "
            "only tensors of numbers can travel between devices"
        )
    tensor = value.type.tensor_type
    dtype = numpy_dtype(tensor.elem_type, f"{label}: {what}")
    return Tensor(value.name, tuple(dim.dim_value for dim in tensor.shape.dim), dtype)
