"""The tail of a network: operators whose shapes depend on the data, which run as one layer.

A device must know beforehand how many bytes it receives. So a tensor of which only the data tell
the shape never travels between devices: the operators that make or read one belong to one layer,
which is called a tail because it mostly stands at the end, where a detector selects its boxes. It
may stand at the beginning too.

A layer must be convex: if a path left it and came back, it would wait for another layer that waits
for it. So an operator on a path between two such operators belongs to the tail as well. An operator
behind it that reads static tensors only is a layer of its own again.

An `If`, a `Loop` or a `Scan` whose results have static shapes is a layer like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from cnn.network import Tensor
from cnn.reading.bodies import reads


@dataclass(frozen=True, slots=True)
class TailSplit:
    """The nodes of a network in a topological order: those that do not depend on the tail, the
    tail, and those that do. `results` are the tensors that the tail makes for others, in order."""

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
    """Part the nodes of a network, which stand in a topological order, from its tail.

    A tensor has no static shape if it varies, or is missing in `tensors` as sequences are. What is
    computed from constants alone prepares them for whichever layer reads them, and is no tail.
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
    """Which nodes are in `start`, or depend on one that is."""
    made: set[str] = set()
    found = []
    for node, is_start in zip(nodes, start, strict=True):
        found.append(is_start or not made.isdisjoint(reads(node)))
        if found[-1]:
            made.update(filter(None, node.output))
    return found


def _needed(nodes: Sequence[onnx.NodeProto], start: Sequence[bool]) -> list[bool]:
    """Which nodes are in `start`, or one that is depends on them."""
    read: set[str] = set()
    found = []
    for node, is_start in zip(reversed(nodes), reversed(start), strict=True):
        found.append(is_start or not read.isdisjoint(node.output))
        if found[-1]:
            read.update(reads(node))
    return found[::-1]
