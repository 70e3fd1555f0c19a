"""Slices: compute a layer in parts of its output channels (Tang & Stefanov 2021, §1, horizontal).

A layer `conv` that makes `t` becomes `conv[1/4]`, … that make `t[1/4]`, …, and `t` becomes a view
of them. Each part holds the weights of its own channels, which share memory with the layer's.
Operators that work channel by channel (elementwise, pooling, depthwise convolution) read only the
region of their input that their channels need: exactly one part of a tensor that is sliced alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import accumulate, pairwise

import onnx

from cnn.errors import ModelError
from cnn.rewrite.channels import Rule, Use, rule_of
from cnn.rewrite.draft import Draft, DraftLayer
from cnn.rewrite.prepared import operands, preparing_nodes, shape_of, sliced
from cnn.rewrite.rewrites import Channels, Slices, part_name


def sliceable(draft: Draft) -> dict[str, Channels]:
    """Return the output channels of all layers that can be sliced, by layer name."""
    found: dict[str, Channels] = {}
    for name, layer in draft.layers.items():
        rule = rule_of(draft, layer)
        if rule is not None:
            in_part = {layer.node.input[use.index] for use in rule.uses}
            is_channelwise = in_part.issuperset(operands(draft, layer))
            found[name] = Channels(rule.channels, rule.group_channels, is_channelwise)
    return found


def apply_slices(draft: Draft, rewrite: Slices) -> None:
    """Slice a layer of `draft`; raise `ModelError` if it cannot be sliced like that."""
    layer = draft.layer(rewrite.layer)
    rule = rule_of(draft, layer)
    if rule is None:
        raise ModelError(
            f"layer {layer.name!r} ({layer.node.op_type}) cannot be computed in slices of channels"
        )
    _check(rewrite, rule)
    count = len(rewrite.channels)
    if count == 1:
        return
    parts = [
        _slice(draft, layer, rule, start, stop, part_name("", number, count))
        for number, (start, stop) in enumerate(pairwise(accumulate(rewrite.channels, initial=0)), 1)
    ]
    draft.replace([layer.name], parts)
    draft.join(layer.outputs[0], rule.axis, [made for part in parts for made in part.outputs])


def _check(rewrite: Slices, rule: Rule) -> None:
    sizes = " + ".join(map(str, rewrite.channels))
    if sum(rewrite.channels) != rule.channels:
        raise ModelError(
            f"layer {rewrite.layer!r} has {rule.channels} output channels, and its slices have "
            f"{sizes} = {sum(rewrite.channels)}; these must be equal"
        )
    if not Channels(rule.channels, rule.group_channels).allow(rewrite.channels):
        raise ModelError(
            f"layer {rewrite.layer!r} has groups of {rule.group_channels} output channels, and "
            f"each of its slices {sizes} must be some whole groups or lie within one"
        )


def _slice(
    draft: Draft, layer: DraftLayer, rule: Rule, start: int, stop: int, suffix: str
) -> DraftLayer:
    whole = draft.tensors[layer.outputs[0]]
    shape = list(whole.shape)
    shape[rule.axis] = stop - start
    node = deepcopy(layer.node)
    node.name = layer.name + suffix
    trailing = layer.make_parts(node, {whole.name: suffix})
    draft.add_tensor(whole.name + suffix, shape, whole.dtype)
    inputs = {index: (name, preparing_nodes(layer, name)) for index, name in enumerate(node.input)}
    for use in rule.uses:
        name, _ = inputs[use.index]
        start_stop = _along(draft, layer, rule, use, start, stop)
        inputs[use.index] = sliced(draft, layer, name, use.axis, *start_stop)
    if rule.is_concatenation:
        inputs = dict(enumerate(_concatenated(draft, layer, rule.axis, start, stop)))
    if any(use.by == "group" for use in rule.uses):
        _set_group(node, max(1, (stop - start) // rule.group_channels))
    node.input[:] = [name for name, _ in inputs.values()]
    preparing = {x.output[0]: x for _, nodes in inputs.values() for x in nodes}
    macs = layer.macs * (stop - start) // rule.channels
    return DraftLayer(
        layer.name + suffix, (*preparing.values(), node), macs, layer.origin, trailing
    )


def _along(
    draft: Draft, layer: DraftLayer, rule: Rule, use: Use, start: int, stop: int
) -> tuple[int, int]:
    """Return the part of an input, along its use's axis, that channels [start, stop) need."""
    if use.by == "channel":
        return start, stop
    size = rule.group_channels
    first, last = start // size, -(-stop // size)
    if use.by == "group":
        each = shape_of(draft, layer, layer.node.input[use.index])[use.axis] * size // rule.channels
        return first * each, last * each
    return (start - first * size, stop - first * size) if last - first == 1 else (0, size)


def _concatenated(
    draft: Draft, layer: DraftLayer, axis: int, start: int, stop: int
) -> Iterator[tuple[str, tuple[onnx.NodeProto, ...]]]:
    """Yield the inputs of a concatenation, or parts of them, that lie in [start, stop)."""
    offset = 0
    for name in layer.node.input:
        extent = shape_of(draft, layer, name)[axis]
        first, last = max(start - offset, 0), min(stop - offset, extent)
        offset += extent
        if first < last:
            yield sliced(draft, layer, name, axis, first, last)


def _set_group(node: onnx.NodeProto, groups: int) -> None:
    for attribute in node.attribute:
        if attribute.name == "group":
            attribute.i = groups
