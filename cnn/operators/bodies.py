"""Walk and rename the graphs inside operators: branches of `If`, bodies of `Loop` and `Scan`.

A body reads tensors of the surrounding graph by name, without listing them as inputs of its
operator. So an operator reads its inputs and everything that its bodies capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy

import onnx


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that are attributes of an operator."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the tensors of the surrounding graph that an operator's bodies read, each once."""
    return tuple(dict.fromkeys(name for body in bodies(node) for name in _read_outside(body)))


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return all tensors that an operator reads, each once, inputs first."""
    return tuple(dict.fromkeys(name for name in (*node.input, *captured(node)) if name))


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes, each followed by those in its bodies."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from every_node(body.node)


def has_body(node: onnx.NodeProto) -> bool:
    """Whether an operator contains a graph."""
    return next(bodies(node), None) is not None


def names_read(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every tensor that a graph reads or returns, in the bodies of its nodes too."""
    for node in graph.node:
        yield from node.input
        for body in bodies(node):
            yield from names_read(body)
    yield from (output.name for output in graph.output)


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of `node` with tensors renamed by `names`, in its bodies too."""
    copy = deepcopy(node)
    rename(copy, names)
    return copy


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename the tensors that `node` and its bodies read and make, in place."""
    for index, name in enumerate(node.input):
        if name in names:
            node.input[index] = names[name]
    for index, name in enumerate(node.output):
        if name in names:
            node.output[index] = names[name]
    for body in bodies(node):
        own = _own(body)
        outer = {name: new for name, new in names.items() if name not in own}
        for inner in body.node:
            rename(inner, outer)
        for value in body.output:
            value.name = outer.get(value.name, value.name)


def _own(body: onnx.GraphProto) -> set[str]:
    """Return the names that a body defines itself.

    ONNX forbids names of the surrounding graph here; where a body reuses one, it is another tensor.
    """
    own = {value.name for value in (*body.input, *body.initializer)}
    own.update(name for node in body.node for name in node.output)
    return own


def _read_outside(body: onnx.GraphProto) -> Iterator[str]:
    own = _own(body)
    for node in body.node:
        yield from (name for name in reads(node) if name not in own)
    yield from (value.name for value in body.output if value.name not in own)
