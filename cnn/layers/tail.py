"""Split off a network's tail: the operators whose shapes depend on the data, which form one layer.

A device must know in advance how many bytes it receives. A tensor whose shape depends on the data
therefore never travels between devices: the operators that make or read such a tensor all belong to
one layer. It is called the tail because it mostly stands at the end, where a detector selects its
boxes, but it may stand at the beginning.

A layer must be convex: if a path left it and came back, the layer would wait for another that waits
for it. So an operator on a path between two operators of the tail belongs to the tail as well. An
operator after the tail that reads only static tensors is a separate layer.

An `If`, a `Loop` or a `Scan` whose results have static shapes is a layer like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from cnn.network import Tensor
from cnn.operators.bodies import reads


@dataclass(frozen=True, slots=True)
class TailSplit:
    """The nodes of a network in topological order: before the tail, the tail, and after it.

    `results` are the tensors that the tail makes for others, in order.
    """

    before: tuple[onnx.NodeProto, ...]
    tail: tuple[onnx.NodeProto, ...]
    after: tuple[onnx.NodeProto, ...]
    results: tuple[str, ...]


def split_tail(
    nodes: Sequence[onnx.NodeProto],
    tensors: Mapping[str, Tensor],
    inputs: Collection[str],
    outputs: Collection[str],
) -> TailSplit:
    """Split the nodes of a network, which stand in a topological order, at its tail.

    A tensor has no static shape if it `varies`, or if it is missing from `tensors`, as sequences
    are. Operators that depend on constants only belong to the layers that read them, never to the
    tail.
    """
    live = set(inputs)
    for node in nodes:
        if not live.isdisjoint(reads(node)):
            live.update(filter(None, node.output))
    is_open = [
        any(
            name in live and (name not in tensors or tensors[name].varies)
            for name in (*reads(node), *node.output)
        )
        for node in nodes
    ]
    depends = _reached(nodes, is_open)
    is_needed = _needed(nodes, is_open)
    tail = [a and b for a, b in zip(depends, is_needed, strict=True)]
    read_elsewhere = set(outputs)
    for node, is_inside in zip(nodes, tail, strict=True):
        if not is_inside:
            read_elsewhere.update(reads(node))
    inside = _chosen(nodes, tail)
    return TailSplit(
        before=_chosen(nodes, [not x for x in depends]),
        tail=inside,
        after=_chosen(nodes, [a and not b for a, b in zip(depends, tail, strict=True)]),
        results=tuple(x for node in inside for x in node.output if x in read_elsewhere),
    )


def _chosen(nodes: Sequence[onnx.NodeProto], which: Sequence[bool]) -> tuple[onnx.NodeProto, ...]:
    return tuple(node for node, is_chosen in zip(nodes, which, strict=True) if is_chosen)


def _reached(nodes: Sequence[onnx.NodeProto], start: Sequence[bool]) -> list[bool]:
    """Return which nodes are in `start` or depend on one that is."""
    made: set[str] = set()
    found = []
    for node, is_start in zip(nodes, start, strict=True):
        found.append(is_start or not made.isdisjoint(reads(node)))
        if found[-1]:
            made.update(filter(None, node.output))
    return found


def _needed(nodes: Sequence[onnx.NodeProto], start: Sequence[bool]) -> list[bool]:
    """Return which nodes are in `start` or have one that is depend on them."""
    read: set[str] = set()
    found = []
    for node, is_start in zip(reversed(nodes), reversed(start), strict=True):
        found.append(is_start or not read.isdisjoint(node.output))
        if found[-1]:
            read.update(reads(node))
    return found[::-1]
