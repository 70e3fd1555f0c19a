"""Parts of a layer's values: of activations, of weights, and of weights that nodes prepare.

An 8-bit weight is dequantised by a node that belongs to the layer (`cnn.layers`). A part of the
prepared value is the same preparation of a part of the weight.
"""

from __future__ import annotations

import onnx

from cnn.draft import Draft, DraftLayer
from cnn.views import region_name


def is_divisible(draft: Draft, layer: DraftLayer, name: str) -> bool:
    """Whether parts of the value `name`, which `layer` reads, can be had."""
    node = _preparing(layer, name)
    if node is None:
        return True
    if node.op_type == "Cast":
        return is_divisible(draft, layer, node.input[0])
    if node.op_type == "DequantizeLinear":
        source, *parameters = (x for x in node.input if x)
        return source in draft.weights and all(
            x in draft.weights and draft.weights[x].ndim < 2 for x in parameters
        )
    return False


def part(
    draft: Draft, layer: DraftLayer, name: str, axis: int, start: int, stop: int
) -> tuple[str, tuple[onnx.NodeProto, ...]]:
    """The value `name` from `start` to `stop` along `axis`: its name and the nodes preparing it.

    `name` must be divisible (`is_divisible`).
    """
    node = _preparing(layer, name)
    if name in draft.weights:
        return draft.weight_part(name, axis, start, stop), ()
    if node is None:
        return draft.region(name, ((axis, start, stop),)), ()
    source, before = part(draft, layer, node.input[0], axis, start, stop)
    if source == node.input[0]:
        return name, closure(layer, name)
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[0] = source
    made.output[0] = made.name = region_name(name, ((axis, start, stop),))
    if node.op_type == "DequantizeLinear" and _parameters_axis(draft, node) == axis:
        for index in range(1, len(node.input)):
            if node.input[index] and draft.weights[node.input[index]].size > 1:
                made.input[index] = draft.weight_part(node.input[index], 0, start, stop)
    return made.output[0], (*before, made)


def shape_of(draft: Draft, layer: DraftLayer, name: str) -> tuple[int, ...]:
    """The shape of a divisible value: preparing a constant leaves its shape as it is."""
    node = _preparing(layer, name)
    if node is not None:
        return shape_of(draft, layer, node.input[0])
    if name in draft.weights:
        return tuple(draft.weights[name].shape)
    return draft.tensors[name].shape


def closure(layer: DraftLayer, name: str) -> tuple[onnx.NodeProto, ...]:
    """The nodes of `layer` that prepare `name`; none for a value that needs no preparation."""
    node = _preparing(layer, name)
    if node is None:
        return ()
    return (*(x for source in node.input for x in closure(layer, source)), node)


def _preparing(layer: DraftLayer, name: str) -> onnx.NodeProto | None:
    return next((node for node in layer.nodes[:-1] if name in node.output), None)


def _parameters_axis(draft: Draft, node: onnx.NodeProto) -> int:
    """The axis that scales and zero points of a DequantizeLinear belong to."""
    rank = draft.weights[node.input[0]].ndim
    return int(next((x.i for x in node.attribute if x.name == "axis"), 1)) % rank
