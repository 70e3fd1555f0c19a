"""Put a network into batches: one firing of a layer computes B frames.

Axis 0 of every activation, which has the length 1, gets the length B. The weights stay, except the
few constants that count frames, such as the shape of a `Reshape` (`cnn.operators.batch_rules`). The
result is an ordinary network whose "frame" is a batch: everything that plans, cuts, proves and
predicts holds for it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace

import onnx

from cnn.errors import CnnError, ModelError
from cnn.layers.grouping import Operators
from cnn.network import TAIL, Array, Layer, Network, Tensor, read_by, weight_tensors
from cnn.operators.batch_rules import in_batch
from cnn.operators.bodies import reads
from cnn.operators.operands import NoRuleError
from cnn.rewrite.draft import Draft
from cnn.rewrite.prepared import operands_of


def put_in_batches(
    network: Network, operators: Operators, weights: Mapping[str, Array], frames: int
) -> tuple[Network, Operators, dict[str, Array]]:
    """Return the network, its operators and its weights for batches of `frames` frames.

    Raises `ModelError`, which names the first layer that cannot compute several frames at once.
    """
    for name in network.inputs:
        _check_input(network, network.tensors[name])
    draft = Draft(network, operators, weights)
    constants = _Constants(weights, frames)
    nodes = dict(operators.of_layer)
    layers = []
    for layer in network.layers:
        own = _own_node(network, draft, layer, constants)
        nodes[layer.name] = (*operators.of_layer[layer.name][:-1], own)
        read = (
            x
            for node in (*nodes[layer.name], *operators.trailing.get(layer.name, ()))
            for x in reads(node)
            if x in constants.arrays
        )
        layers.append(replace(layer, weights=tuple(dict.fromkeys(read)), macs=layer.macs * frames))
    arrays = read_by(layers, constants.arrays)
    batched = replace(
        network,
        layers=tuple(layers),
        tensors={
            name: replace(tensor, shape=(frames, *tensor.shape[1:]))
            for name, tensor in network.tensors.items()
        },
        weights=weight_tensors(arrays),
        batch=frames,
    )
    return batched, replace(operators, of_layer=nodes), arrays


def _check_input(network: Network, tensor: Tensor) -> None:
    if not tensor.shape or tensor.shape[0] != 1:
        raise ModelError(
            f"{network.name}: the first axis of the input {tensor.name!r}, which has the shape "
            f"{list(tensor.shape)}, must be that of the frames, with the length 1, to compute "
            "several frames at once; fix it by `input_shape`, or set `batch: 1`"
        )


def _own_node(
    network: Network, draft: Draft, layer: Layer, constants: _Constants
) -> onnx.NodeProto:
    """Return the layer's own node for batches."""
    drafted = draft.layers[layer.name]
    try:
        if layer.state:
            raise NoRuleError("it keeps state from frame to frame")
        if layer.operator == TAIL:
            raise NoRuleError("the shapes of its results depend on the data")
        changed = in_batch(operands_of(draft, drafted), constants.frames)
    except CnnError as error:
        raise ModelError(
            f"{network.name}: layer {layer.name!r} ({layer.operator}) cannot compute several "
            f"frames at once: {error}; set `batch: 1`"
        ) from None
    if not changed:
        return drafted.node
    node = deepcopy(drafted.node)
    for index, values in changed.items():
        node.input[index] = constants.add(node.input[index], values)
    return node


class _Constants:
    """The weights, and the constants that count frames in their place."""

    def __init__(self, weights: Mapping[str, Array], frames: int) -> None:
        self.frames = frames
        self.arrays: dict[str, Array] = dict(weights)

    def add(self, name: str, values: Array) -> str:
        """Add values in the place of the constant `name`; return their name."""
        made = f"{name}[batch {self.frames}]"
        number = 1
        while made in self.arrays:
            known = self.arrays[made]
            if known.shape == values.shape and (known == values).all():
                return made
            number += 1
            made = f"{name}[batch {self.frames}]#{number}"
        self.arrays[made] = values
        return made
