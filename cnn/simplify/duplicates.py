"""Computes once what is computed twice: equal operators that read the same tensors."""

from __future__ import annotations

import onnx

from cnn.read.bodies import reads, rename
from cnn.read.weights import INLINE_BYTES
from cnn.simplify.graph import OperatorGraph


def remove_duplicates(graph: OperatorGraph) -> bool:
    """Let whatever reads the second of two equal operators read the first; whether there was any.

    Small constants are equal if their values are; they stay apart, because layers that shared one
    would have to be on one device. What makes an output of the network stays as well.
    """
    before = len(graph.nodes)
    instead: dict[str, str] = {}
    first: dict[tuple[object, ...], onnx.NodeProto] = {}
    kept = []
    for node in graph.nodes:
        rename(node, instead)
        known = first.setdefault(_key(graph, node), node)
        if known is node or not set(node.output).isdisjoint(graph.outputs):
            kept.append(node)
            continue
        instead.update(zip(node.output, known.output, strict=True))
    graph.nodes = kept
    return len(kept) < before


def _key(graph: OperatorGraph, node: onnx.NodeProto) -> tuple[object, ...]:
    attributes = sorted(x.SerializeToString(deterministic=True) for x in node.attribute)
    inputs = tuple(_identity(graph, name) for name in node.input)
    outputs = tuple(bool(name) for name in node.output)
    if all(name in graph.constants for name in reads(node)):  # it goes wherever its reader goes
        inputs = (*inputs, node.output[0])
    return node.domain, node.op_type, tuple(attributes), inputs, outputs


def _identity(graph: OperatorGraph, name: str) -> object:
    array = graph.constants.get(name)
    if array is None or array.nbytes >= INLINE_BYTES:
        return name
    return array.dtype.name, array.shape, array.tobytes()
