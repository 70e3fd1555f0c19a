"""Graphs inside of operators: the branches of an `If`, the bodies of a `Loop` and a `Scan`.

A body reads tensors of the graph around it by their names, without listing them as inputs of its
operator. So what an operator reads is its inputs and what its bodies capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx


def bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs that are attributes of an operator."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """The tensors of the graph around it that an operator's bodies read, each once."""
    return tuple(dict.fromkeys(name for body in bodies(node) for name in _read_outside(body)))


def reads(node: onnx.NodeProto) -> tuple[str, ...]:
    """All tensors that an operator reads, each once: its inputs come first."""
    return tuple(dict.fromkeys(name for name in (*node.input, *captured(node)) if name))


def every_node(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, each followed by those inside of it."""
    for node in nodes:
        yield node
        for body in bodies(node):
            yield from every_node(body.node)


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy of `node` that reads and makes tensors under other names, in its bodies too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    rename(copy, names)
    return copy


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Let `node`, and the nodes of its bodies, read and make tensors under other names."""
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
    """What a body makes itself. ONNX forbids names of the graph around it; where one uses such a
    name, that is another tensor."""
    own = {value.name for value in (*body.input, *body.initializer)}
    own.update(name for node in body.node for name in node.output)
    return own


def _read_outside(body: onnx.GraphProto) -> Iterator[str]:
    own = _own(body)
    for node in body.node:
        yield from (name for name in reads(node) if name not in own)
    yield from (value.name for value in body.output if value.name not in own)
