"""Slices: a layer computed in parts of its output channels (Tang & Stefanov 2021, §1, horizontal).

A layer `conv` that makes `t` becomes `conv[1/4]`, … that make `t[1/4]`, …, and `t` a view of
them. Each part holds the weights of its own channels, as views of the layer's arrays. What works
channel by channel (element-wise layers, pooling, depthwise convolutions) reads only the region of
its input that its channels need: exactly one part of a tensor that is sliced in the same way.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

import onnx

from cnn.draft import Draft, DraftLayer
from cnn.errors import ModelError
from cnn.rewrites import Slices


def sliceable(draft: Draft, name: str) -> int:
    """The number of output channels of a layer that can be sliced, else 0."""
    layer = draft.layers[name]
    if layer.node.op_type == "Conv" and layer.node.input[1] in draft.weights:
        return draft.tensors[layer.outputs[0]].shape[1]
    return 0


def carry_out_slices(draft: Draft, rewrite: Slices) -> None:
    """Slice a layer of `draft`; raises `ModelError` if it cannot be sliced like that."""
    layer = draft.layer(rewrite.layer)
    channels = sliceable(draft, layer.name)
    if not channels:
        raise ModelError(
            f"layer {layer.name!r} ({layer.node.op_type}) cannot be computed in slices of channels"
        )
    if sum(rewrite.channels) != channels:
        raise ModelError(
            f"layer {layer.name!r} has {channels} output channels, but its slices "
            f"{'+'.join(map(str, rewrite.channels))} have {sum(rewrite.channels)}"
        )
    count = len(rewrite.channels)
    if count == 1:
        return
    (tensor,) = layer.outputs
    whole = draft.tensors[tensor]
    parts: list[DraftLayer] = []
    edges = [0, *accumulate(rewrite.channels)]
    for number, (start, stop) in enumerate(pairwise(edges), start=1):
        suffix = f"[{number}/{count}]"
        shape = (whole.shape[0], stop - start, *whole.shape[2:])
        made = draft.add_tensor(tensor + suffix, shape, whole.dtype)
        node = onnx.NodeProto()
        node.CopyFrom(layer.node)
        node.name, node.output[:] = layer.name + suffix, [made]
        for index in (1, 2):
            if index < len(node.input) and node.input[index]:
                node.input[index] = draft.weight_part(node.input[index], 0, start, stop)
        macs = layer.macs * (stop - start) // channels
        parts.append(DraftLayer(layer.name + suffix, (node,), macs, layer.origin))
    draft.replace([layer.name], parts)
    draft.join(tensor, 1, [part.outputs[0] for part in parts])
