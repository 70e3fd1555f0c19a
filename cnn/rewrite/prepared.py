"""Take parts of a layer's operands: activations, weights, and values prepared from them.

A node of the layer dequantises an 8-bit weight or activation (`cnn.layers.grouping`). A part of the
prepared value is the same preparation applied to a part of the source.
"""

from __future__ import annotations

from copy import deepcopy

import onnx

from cnn.layers.grouping import final_names
from cnn.layers.views import region_name
from cnn.operators.attributes import integer
from cnn.operators.operands import Operands
from cnn.operators.standard import QUANTISERS
from cnn.rewrite.draft import Draft, DraftLayer


def is_divisible(draft: Draft, layer: DraftLayer, name: str) -> bool:
    """Whether a part of the value `name`, which `layer` reads, can be taken."""
    node = _preparing(layer, name)
    if node is None:
        return True
    if node.op_type == "Cast":
        return is_divisible(draft, layer, node.input[0])
    if node.op_type in QUANTISERS:
        source, *parameters = (x for x in node.input if x)
        return is_divisible(draft, layer, source) and all(
            x in draft.weights and draft.weights[x].ndim < 2 for x in parameters
        )
    return False


def activation_of(draft: Draft, layer: DraftLayer, name: str) -> str:
    """Return the activation that a value is, or is prepared from; "" for a constant."""
    node = _preparing(layer, name)
    if node is not None:
        return activation_of(draft, layer, node.input[0]) if node.input else ""
    return "" if name in draft.weights else name


def operands(draft: Draft, layer: DraftLayer) -> frozenset[str]:
    """Return the inputs of the layer's own node that are not constants."""
    return frozenset(name for name in layer.node.input if activation_of(draft, layer, name))


def operands_of(draft: Draft, layer: DraftLayer) -> Operands:
    """Return the layer's own node with what is known of its operands."""
    names = dict.fromkeys(name for name in (*layer.node.input, *layer.node.output) if name)
    return Operands(
        layer.node,
        draft.opset,
        {name: shape_of(draft, layer, name) for name in names if is_divisible(draft, layer, name)},
        {name: draft.weights[name] for name in names if name in draft.weights},
        operands(draft, layer),
    )


def prepared_from(
    draft: Draft, layer: DraftLayer, name: str, source: str
) -> tuple[str, tuple[onnx.NodeProto, ...]]:
    """Return the name and nodes of the value `name` if prepared from `source` instead."""
    instead = {activation_of(draft, layer, name): source}
    if source in instead:
        return name, preparing_nodes(layer, name)
    found = []
    for node in preparing_nodes(layer, name):
        copy = deepcopy(node)
        copy.input[:] = [instead.get(read, read) for read in node.input]
        copy.output[0] = copy.name = instead[node.output[0]] = f"{node.output[0]}({source})"
        found.append(copy)
    return instead[name], tuple(found)


def sliced(
    draft: Draft, layer: DraftLayer, name: str, axis: int, start: int, stop: int
) -> tuple[str, tuple[onnx.NodeProto, ...]]:
    """Return the name and nodes of the value `name` from `start` to `stop` along `axis`.

    `name` must be divisible (`is_divisible`).
    """
    node = _preparing(layer, name)
    if name in draft.weights:
        return draft.weight_part(name, axis, start, stop), ()
    if node is None:
        return draft.region(name, ((axis, start, stop),)), ()
    source, before = sliced(draft, layer, node.input[0], axis, start, stop)
    if source == node.input[0]:
        return name, preparing_nodes(layer, name)
    made = deepcopy(node)
    made.input[0] = source
    made.output[0] = made.name = region_name(name, ((axis, start, stop),))
    if node.op_type in QUANTISERS and _parameters_axis(draft, layer, node) == axis:
        for index in range(1, len(node.input)):
            if node.input[index] and draft.weights[node.input[index]].size > 1:
                made.input[index] = draft.weight_part(node.input[index], 0, start, stop)
    return made.output[0], (*before, made)


def shape_of(draft: Draft, layer: DraftLayer, name: str) -> tuple[int, ...]:
    """Return the shape of a divisible value, or of an output of the layer's own node.

    Preparing and trailing nodes leave shapes as they are.
    """
    node = _preparing(layer, name)
    if node is not None:
        return shape_of(draft, layer, node.input[0])
    if name in draft.weights:
        return tuple(draft.weights[name].shape)
    (end,) = final_names([name], layer.trailing)
    return draft.tensors[end].shape


def preparing_nodes(layer: DraftLayer, name: str) -> tuple[onnx.NodeProto, ...]:
    """Return the nodes of `layer` that prepare `name`; none if it needs no preparation."""
    node = _preparing(layer, name)
    if node is None:
        return ()
    return (*(x for source in node.input for x in preparing_nodes(layer, source)), node)


def _preparing(layer: DraftLayer, name: str) -> onnx.NodeProto | None:
    return next((node for node in layer.nodes[:-1] if name in node.output), None)


def _parameters_axis(draft: Draft, layer: DraftLayer, node: onnx.NodeProto) -> int:
    """Return the axis that the scales and zero points of a (de)quantiser belong to."""
    rank = max(1, len(shape_of(draft, layer, node.input[0])))
    return integer(node, "axis", 1) % rank
