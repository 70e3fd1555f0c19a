"""Static shapes and types of every tensor of a simplified model."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import helper

from cnn import contrib
from cnn.errors import ModelError
from cnn.network import Tensor
from cnn.simplify import Simplified
from cnn.supported import describe, numpy_dtype
from cnn.weights import declare


def infer(model: Simplified, label: str) -> dict[str, Tensor]:
    """Describe every activation and constant by name.

    Weights take part by shape only, so a model of any size can be inferred. Raises `ModelError`
    naming the first layer whose output has no static shape or no numeric type.
    """
    weights = {
        name: Tensor(name, tuple(array.shape), array.dtype.name)
        for name, array in model.weights.items()
    }
    known = dict(weights)
    values = _inferred(model, label)
    for value in model.inputs:
        known[value.name] = _tensor(value, label, f"input {value.name!r}")
    for node in model.nodes:
        for name in node.output:
            if name:
                known[name] = _output(node, values.get(name, []), label)
        if node.op_type == "Conv":
            _check_channels(node, known, label)
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


def _output(node: onnx.NodeProto, values: list[onnx.ValueInfoProto], label: str) -> Tensor:
    what = f"an output of {describe(node)}"
    for value in values:
        if _static(value):
            return _tensor(value, label, what)
    for value in values:
        if not value.type.HasField("tensor_type"):
            _tensor(value, label, what)
    raise ModelError(
        f"{label}: the shape of {what} depends on the data or cannot be inferred, and every shape "
        "must be known beforehand; cut this operator and what follows it off the model, or export "
        "the model with fixed shapes"
    )


def _check_channels(node: onnx.NodeProto, known: Mapping[str, Tensor], label: str) -> None:
    """What ONNX's inference lets pass and every engine refuses: another number of channels."""
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
