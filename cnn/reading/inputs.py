"""Fix the shapes of a model's inputs.

A first axis that is symbolic, zero or missing is the batch axis and becomes 1. The height and width
of the only input, an image with its channels first, are those that the exporter wrote into the
metadata (`imgsz`, as ultralytics does). The user must give every other open axis.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

import onnx

from cnn.errors import ModelError
from cnn.network import Array
from cnn.operators.bodies import names_read
from cnn.operators.standard import BROADCASTING, ELEMENTWISE
from cnn.operators.supported import check_element_type

InputShapes = Mapping[str, tuple[int, ...]] | tuple[int, ...] | None
"""A shape per input name, or one shape for the only input, or None."""

_IMAGE = (1, 3, 224, 224)
_PLAIN = re.compile(r"(?!(?:yes|no|on|off|true|false|null|y|n)$)[a-z/.][\w./-]*", re.IGNORECASE)
"""Text that YAML reads as itself."""

_SIZE = re.compile(r"[\[(] ?([1-9][0-9]{0,4}), ?([1-9][0-9]{0,4}) ?[\])]|([1-9][0-9]{0,4})")

_OTHER = 16
"""The size that advice shows for an open axis of what is not an image."""


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
    proto: onnx.ModelProto, weights: Mapping[str, Array], requested: InputShapes, label: str
) -> dict[str, tuple[int, ...]]:
    """Make every input shape of `proto` static, in place; return the shapes by input name.

    The file's shapes of other tensors are dropped, because they may contain the axes that were
    open. Raises `ModelError` for an axis that stays open or contradicts the file.
    """
    names = [value.name for value in proto.graph.input]
    if not names:
        raise ModelError(
            f"{label}: no output of the model depends on an input, so there is nothing to run"
        )
    advice = _Advice(proto.graph, weights, label)
    shapes = _by_name(requested, names, label, advice)
    stated = _stated_size(proto) if len(names) == 1 else None
    settled: dict[str, tuple[int, ...]] = {}
    for value in proto.graph.input:
        if not value.type.HasField("tensor_type"):
            kind = value.type.WhichOneof("value") or "unknown"
            raise ModelError(
                f"{label}: input {value.name!r} is of the type {kind.removesuffix('_type')}; "
                "export the model with tensor inputs only"
            )
        check_element_type(value.type.tensor_type.elem_type, f"{label}: input {value.name!r}")
        shape = _settle_one(value, shapes, label, advice, stated)
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


def _by_name(
    requested: InputShapes, names: list[str], label: str, advice: _Advice
) -> Mapping[str, tuple[int, ...]]:
    if requested is None:
        return {}
    if not isinstance(requested, Mapping):
        if len(names) > 1:
            raise ModelError(
                f"{label}: one input_shape is given but the model has {len(names)} inputs; give "
                f"one for each of {', '.join(names)} that has an open axis: "
                f"{advice.for_those_without({})}"
            )
        return {names[0]: tuple(requested)}
    for name in requested:
        if name not in names:
            raise ModelError(
                f"{label}: an input_shape is given for {name!r}, but the model's inputs are "
                f"{', '.join(names)}"
            )
    return requested


def image_size(text: str) -> tuple[int, int] | None:
    """Return the height and width that `imgsz` of a model's metadata states, None for other texts.

    >>> image_size("[384, 640]"), image_size("640"), image_size("large")
    ((384, 640), (640, 640), None)
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    height, width, both = match.groups()
    return int(height or both), int(width or both)


def _stated_size(proto: onnx.ModelProto) -> tuple[int, int] | None:
    texts = (entry.value for entry in proto.metadata_props if entry.key == "imgsz")
    return image_size(next(texts, ""))


def _with_size(found: list[int | None], size: tuple[int, int] | None) -> list[int | None]:
    """Return the axes of an image, channels first, whose open height and width are `size`."""
    if size is None or len(found) != len(_IMAGE) or found[1] not in (1, 3, 4):
        return found
    open_or_size = zip(found[2:], size, strict=True)
    return [*found[:2], *(usual if axis is None else axis for axis, usual in open_or_size)]


def _settle_one(
    value: onnx.ValueInfoProto,
    given: Mapping[str, tuple[int, ...]],
    label: str,
    advice: _Advice,
    stated: tuple[int, int] | None,
) -> tuple[int, ...]:
    requested = given.get(value.name)
    tensor = value.type.tensor_type
    if requested is not None and any(size < 1 for size in requested):
        raise ModelError(f"{label}: the input_shape of {value.name!r} has a size below 1")
    if not tensor.HasField("shape"):
        if requested is None:
            raise ModelError(
                f"{label}: input {value.name!r} has no shape in the file; "
                f"write it in cluster.yaml: {advice.for_those_without(given)}"
            )
        return tuple(requested)
    found = _axes(value)
    if requested is None:
        found = _with_size(found, stated)
        return _close(value, found, label, advice.for_those_without(given))
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


def _axes(value: onnx.ValueInfoProto) -> list[int | None]:
    """Return the axes of an input, None for each that is open."""
    return [
        dim.dim_value if dim.dim_value > 0 else None for dim in value.type.tensor_type.shape.dim
    ]


def _close(
    value: onnx.ValueInfoProto, found: list[int | None], label: str, advice: str
) -> tuple[int, ...]:
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
        f"write its size in cluster.yaml: {advice}"
    )


class _Advice:
    """Says what to write into cluster.yaml for the inputs of a model that are open."""

    def __init__(self, graph: onnx.GraphProto, weights: Mapping[str, Array], label: str) -> None:
        self._graph = graph
        self._weights = weights
        self._label = label

    def for_those_without(self, given: Mapping[str, tuple[int, ...]]) -> str:
        """Return a `model` with a shape for each input that is open; those `given` stay."""
        shapes = {
            value.name: list(given[value.name]) if value.name in given else self._sizes(value)
            for value in self._graph.input
            if value.name in given or _is_open(value)
        }
        named = ", ".join(f"{_yaml(name)}: {shape}" for name, shape in shapes.items())
        shown = f"{{{named}}}" if len(self._graph.input) > 1 else next(iter(shapes.values()), [])
        return f"model: {{path: {_yaml(self._label)}, input_shape: {shown}}}"

    def _sizes(self, value: onnx.ValueInfoProto) -> list[int]:
        """Return a shape that an input may have, as far as the operators that read it tell."""
        axes = _axes(value) if value.type.tensor_type.HasField("shape") else None
        rank, known = self._known(value.name)
        if axes is None:
            axes = [None] * (rank or len(_IMAGE))
        usual = _IMAGE if len(axes) == len(_IMAGE) else (1, *[_OTHER] * len(axes))
        if len(axes) == len(_IMAGE) and axes[3] in (1, 3, 4):  # channels last
            usual = (1, 224, 224, 3)
        known = {axis % len(axes): size for axis, size in known.items()}
        return [
            known.get(axis, usual[axis]) if size is None else size for axis, size in enumerate(axes)
        ]

    def _known(self, name: str) -> tuple[int, dict[int, int]]:
        """Return the rank of a tensor and sizes of axes, as its first reader with weights has them.

        The rank is 0 if it does not follow.
        """
        for node in self._graph.node:
            if not node.input or node.input[0] != name:
                continue
            weight = self._weights.get(node.input[1]) if len(node.input) > 1 else None
            attributes = {x.name: x.i for x in node.attribute}
            if node.op_type == "Conv" and weight is not None and weight.ndim > 1:
                return weight.ndim, {1: weight.shape[1] * attributes.get("group", 1)}
            if node.op_type == "Gemm" and weight is not None and weight.ndim == 2:
                return 2, {1: weight.shape[1 if attributes.get("transB") else 0]}
            if node.op_type == "MatMul" and weight is not None and weight.ndim > 1:
                return 0, {-1: weight.shape[-2]}
            if node.op_type in ELEMENTWISE | BROADCASTING and node.output[0] != name:
                return self._known(node.output[0])
        return 0, {}


def _is_open(value: onnx.ValueInfoProto) -> bool:
    return not value.type.tensor_type.HasField("shape") or None in _axes(value)[1:]


def _yaml(text: str) -> str:
    """Return text as YAML has it inside of brackets."""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
