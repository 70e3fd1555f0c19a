"""Move quantisers such that parts of a network are fused as the whole is, and 8 bits cross cuts.

A quantiser with one scale treats every element alike, and it keeps their order. So it commutes with
operators that move or select elements (`MOVERS`), a maximum included:

    DequantizeLinear → Transpose            is  Transpose → DequantizeLinear,
    Transpose → QuantizeLinear              is  QuantizeLinear → Transpose.

Engines use this to fuse `DequantizeLinear` → `Conv` → `QuantizeLinear` to an integer convolution
although an operator stands between. An engine that gets only a part of the network sees only one
side. Therefore the network is rewritten before it is cut: then every part is fused as in the whole,
and what crosses a cut has 8 bits. Where quantisers stand on both sides of an operator, they stay,
because the operator forms a layer with both (`cnn.layers.grouping`).

Where a dequantised tensor is an output of the network and is also read, its readers get a separate
`DequantizeLinear`. Then they read 8 bits, and engines can fuse them.
"""

from __future__ import annotations

from copy import deepcopy

import onnx

from cnn.operators.bodies import reads
from cnn.operators.standard import STANDARD_DOMAINS
from cnn.simplify.graph import OperatorGraph

MOVERS = frozenset({"MaxPool", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""The operators over which ONNX Runtime 1.31 moves quantisers. It fuses nothing over others, such
as `Gather`; to move quantisers over these would change how whole networks round."""

_POOLS_8_BITS_SINCE = 12
"""The operator set from which `MaxPool` takes 8-bit tensors."""

_EIGHT_BITS = frozenset({onnx.TensorProto.INT8, onnx.TensorProto.UINT8})


def move_quantisers(graph: OperatorGraph) -> None:
    """Move `DequantizeLinear` after movers and `QuantizeLinear` before them; separate outputs from
    tensors that are read.
    """
    _separate_outputs(graph)
    while _move_dequantisers(graph) or _move_quantisers(graph):
        graph.sort()
        graph.remove_unread()


def _separate_outputs(graph: OperatorGraph) -> None:
    readers = graph.readers()
    for node in tuple(graph.nodes):
        made = node.output[0]
        direct = [reader for reader in readers.get(made, []) if made in reader.input]
        if made in graph.outputs and direct and _is_dequantiser(graph, node):
            copy = deepcopy(node)
            copy.name = ""
            copy.output[0] = _described(graph, f"{made}_read", like=made, kind=made)
            graph.nodes.append(copy)
            for reader in direct:
                reader.input[:] = [copy.output[0] if x == made else x for x in reader.input]
    graph.sort()


def _move_dequantisers(graph: OperatorGraph) -> bool:
    """Move each dequantiser over one mover; return whether there was any."""
    is_changed = False
    producers, readers, prepared = graph.producers(), graph.readers(), _prepared(graph)
    for mover in tuple(graph.nodes):
        before = producers.get(mover.input[0]) if _is_mover(graph, mover) else None
        if before is None or not _is_dequantiser(graph, before) or mover.output[0] in graph.outputs:
            continue
        if before.input[0] in prepared:
            continue
        behind = readers.get(mover.output[0], [])
        is_between = len(behind) == 1 and _is_quantiser(graph, behind[0])
        if is_between or not _takes(graph, mover, before.input[0]):
            continue
        made = mover.output[0]
        moved = deepcopy(before)
        moved.name = ""
        mover.input[0] = before.input[0]
        mover.output[0] = moved.input[0] = _described(
            graph, f"{made}_quantised", like=made, kind=before.input[0]
        )
        moved.output[0] = made
        graph.nodes.append(moved)
        is_changed = True
    return is_changed


def _move_quantisers(graph: OperatorGraph) -> bool:
    """Move each quantiser over one mover; return whether there was any."""
    is_changed = False
    producers, readers = graph.producers(), graph.readers()
    for quantiser in graph.nodes:
        mover = producers.get(quantiser.input[0]) if _is_quantiser(graph, quantiser) else None
        if mover is None or not _is_mover(graph, mover) or mover.output[0] in graph.outputs:
            continue
        source = mover.input[0]
        before = producers.get(source)
        if before is None or _is_dequantiser(graph, before) or source in graph.outputs:
            continue
        if len(readers[source]) > 1 or len(readers[mover.output[0]]) > 1:
            continue
        if not _takes(graph, mover, quantiser.output[0]):
            continue
        made = quantiser.output[0]
        quantiser.input[0] = source
        quantiser.output[0] = mover.input[0] = _described(
            graph, f"{source}_quantised", like=source, kind=made
        )
        mover.output[0] = made
        is_changed = True
    return is_changed


def _prepared(graph: OperatorGraph) -> set[str]:
    """Return the constants, and what quantisers and others make of these: weights, not moved."""
    found = {"", *graph.constants}
    for node in graph.nodes:
        if found.issuperset(reads(node)):
            found.update(node.output)
    return found


def _is_mover(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    """Whether a node moves elements of its first input in a way that constants determine."""
    return (
        node.op_type in MOVERS
        and node.domain in STANDARD_DOMAINS
        and len(node.output) == 1
        and node.input[0] not in graph.constants
        and all(name in graph.constants for name in node.input[1:] if name)
    )


def _is_dequantiser(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    return node.op_type == "DequantizeLinear" and _is_by_one_scale(graph, node)


def _is_quantiser(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    return node.op_type == "QuantizeLinear" and _is_by_one_scale(graph, node)


def _is_by_one_scale(graph: OperatorGraph, node: onnx.NodeProto) -> bool:
    parameters = [graph.constants.get(name) for name in node.input[1:] if name]
    known = [array for array in parameters if array is not None and array.size == 1]
    return len(known) == len(parameters) > 0 and float(known[0].item()) > 0


def _takes(graph: OperatorGraph, mover: onnx.NodeProto, quantised: str) -> bool:
    """Whether an operator can move the elements of this quantised tensor."""
    if mover.op_type != "MaxPool":
        return True
    return graph.opset >= _POOLS_8_BITS_SINCE and graph.element_type(quantised) in _EIGHT_BITS


def _described(graph: OperatorGraph, wanted: str, *, like: str, kind: str) -> str:
    """Return the name of a new tensor with the shape of `like` and the element type of `kind`."""
    name = graph.new_name(wanted)
    if like in graph.types:
        described = graph.types[name] = onnx.TypeProto()
        described.CopyFrom(graph.types[like])
        described.tensor_type.elem_type = graph.element_type(kind)
    return name
