"""Fix the shapes of a model's inputs.

A first axis that is symbolic, zero or missing is the batch axis and becomes 1. The user must give
every other open axis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx

from cnn.errors import ModelError
from cnn.operators.supported import check_element_type
from cnn.reading.bodies import names_read

InputShapes = Mapping[str, tuple[int, ...]] | tuple[int, ...] | None
"""A shape per input name, or one shape for the only input, or None."""


def keep_true_inputs(proto: onnx.ModelProto, weights: Collection[str]) -> None:
    """Remove weights and unread names from the graph's inputs, in place.

    Files before ONNX's IR version 4 list every initialiser as an input too.
    """
    read = set(names_read(proto.graph))
    kept = [x for x in proto.graph.input if x.name not in weights and x.name in read]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.ir_version = max(proto.ir_version, 4)


def settle(
    proto: onnx.ModelProto, requested: InputShapes, label: str
) -> dict[str, tuple[int, ...]]:
    """Make every input shape of `proto` static, in place; return the shapes by input name.

    The file's shapes of other tensors are dropped, because they may contain the axes that were
    open. Raises `ModelError` for an axis that stays open or contradicts the file.
    """
    names = [value.name for value in proto.graph.input]
    if not names:
        raise ModelError(f"{label}: the model has no input, so there is nothing to run it on")
    shapes = _by_name(requested, names, label)
    settled: dict[str, tuple[int, ...]] = {}
    for value in proto.graph.input:
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "value without a type"
            raise ModelError(
                f"{label}: input {value.name!r} is a {kind.removesuffix('_type')}, not a tensor; "
                "export the model with tensor inputs only"
            )
        check_element_type(value.type.tensor_type.elem_type, f"{label}: input {value.name!r}")
        shape = _settle_one(value, shapes.get(value.name), label)
        settled[value.name] = shape
        dims = value.type.tensor_type.shape.dim
        del dims[:]
        value.type.tensor_type.shape.SetInParent()
        for size in shape:
            dims.add().dim_value = size
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return settled


def _by_name(requested: InputShapes, names: list[str], label: str) -> Mapping[str, tuple[int, ...]]:
    if requested is None:
        return {}
    if not isinstance(requested, Mapping):
        if len(names) > 1:
            raise ModelError(
                f"{label}: one input_shape is given but the model has {len(names)} inputs; "
                f"give one for each: {', '.join(names)}"
            )
        return {names[0]: tuple(requested)}
    for name in requested:
        if name not in names:
            raise ModelError(
                f"{label}: an input_shape is given for {name!r}, but the model's inputs are "
                f"{', '.join(names)}"
            )
    return requested


def _settle_one(
    value: onnx.ValueInfoProto, requested: tuple[int, ...] | None, label: str
) -> tuple[int, ...]:
    tensor = value.type.tensor_type
    if requested is not None and any(size < 1 for size in requested):
        raise ModelError(f"{label}: the input_shape of {value.name!r} has a size below 1")
    if not tensor.HasField("shape"):
        if requested is None:
            raise ModelError(
                f"{label}: input {value.name!r} has no shape in the file; "
                f"write it in cluster.yaml: {_hint(label, [])}"
            )
        return tuple(requested)
    found = [dim.dim_value if dim.dim_value > 0 else None for dim in tensor.shape.dim]
    if requested is None:
        return _close(value, found, label)
    if len(requested) != len(found):
        raise ModelError(
            f"{label}: the input_shape of {value.name!r} has {len(requested)} axes, "
            f"the file's has {len(found)}"
        )
    for axis, (size, fixed) in enumerate(zip(requested, found, strict=True)):
        if fixed is not None and fixed != size:
            raise ModelError(
                f"{label}: axis {axis} of input {value.name!r} is {fixed} in the file, "
                f"the input_shape says {size}; export the model for that size instead"
            )
    return tuple(requested)


def _close(value: onnx.ValueInfoProto, found: list[int | None], label: str) -> tuple[int, ...]:
    shape = list(found)
    if shape and shape[0] is None:
        shape[0] = 1
    closed = tuple(size for size in shape if size is not None)
    if len(closed) == len(shape):
        return closed
    axis = shape.index(None)
    dim = value.type.tensor_type.shape.dim[axis]
    called = f" ({dim.dim_param})" if dim.dim_param else ""
    raise ModelError(
        f"{label}: axis {axis}{called} of input {value.name!r} is open; "
        f"write its size in cluster.yaml: {_hint(label, shape)}"
    )


def _hint(label: str, shape: list[int | None]) -> str:
    guess = (1, 3, 224, 224)
    sizes = [
        size if size is not None else (guess[axis] if axis < len(guess) else 1)
        for axis, size in enumerate(shape or guess)
    ]
    return f"model: {{path: {label}, input_shape: {sizes}}}"
