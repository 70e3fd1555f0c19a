"""Lets ONNX Runtime keep its own tensor layout from a subnet's inputs on.

On a CPU its convolutions work on blocks of channels (NCHWc). It converts to that layout only in
front of a convolution or a pooling. A tensor that comes from outside into a residual sum is left
as it is; then that sum is computed in the plain layout, unfused, and so is the sum of the next
block that reads it, with conversions around each. The whole network has none of this.

So such an input passes a pooling of one element while ONNX Runtime optimises, which makes it
convert once, in front of everything; the pooling is cut out of what it has written. Networks with
bodies (If, Loop, Scan) are left as they are: a body may read any tensor of the graph by its name.

The files are edited as protocol buffers because a node does not have the `onnx` package. The
numbers are those of onnx.proto3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodes.executors.protobuf import field, fields, number_field, parts, submessages, text_field

_GRAPH = 7
_NODE, _INPUT = 1, 11
_NODE_INPUT, _NODE_OUTPUT, _NODE_NAME, _NODE_OPERATOR, _NODE_ATTRIBUTE = 1, 2, 3, 4, 5
_ATTRIBUTE_NAME, _ATTRIBUTE_INT, _ATTRIBUTE_INTS, _ATTRIBUTE_TYPE = 1, 3, 8, 20
_ATTRIBUTE_GRAPHS = (6, 11)
_INTS = 7
_VALUE_NAME, _VALUE_TYPE = 1, 2
_TENSOR_TYPE = 1
_ELEMENT_TYPE, _SHAPE = 1, 2
_DIMENSION = 1
_FLOAT = 1

_IMAGE_RANK = 4

_IN_ANY_LAYOUT = frozenset({"Add", "Sum", "Mul", "Concat"})
"""Operators that ONNX Runtime computes on blocks of channels if all that they read is in blocks."""

_MARK = "csdf-edge/layout/"


@dataclass(frozen=True)
class _Node:
    message: bytes
    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def has_body(self) -> bool:
        """Whether it has a graph of its own."""
        return any(
            number in _ATTRIBUTE_GRAPHS
            for attribute, content in submessages(memoryview(self.message))
            if attribute == _NODE_ATTRIBUTE
            for number, _ in fields(content)
        )

    def converts(self, operator: str) -> bool:
        """Whether it is that conversion, from or to NCHW (and not NHWC)."""
        return self.operator == operator and not any(
            text_field(attribute, _ATTRIBUTE_NAME) == "channels_last"
            and any(number == _ATTRIBUTE_INT and value for number, value in fields(attribute))
            for number, attribute in submessages(memoryview(self.message))
            if number == _NODE_ATTRIBUTE
        )


def marked(model: bytes) -> bytes | None:
    """The model with a pooling of one element behind every float32 image [N, C, H, W] that comes
    from outside into a sum, a product or a concatenation; None if there is none, or a body.

    Raises ValueError or IndexError for what is no ONNX model.
    """
    graph = _graph(model)
    nodes = list(_nodes(graph))
    summed = {name for node in nodes if node.operator in _IN_ANY_LAYOUT for name in node.inputs}
    renamed = {name: _MARK + name for name in _images(graph) if name in summed}
    if not renamed or any(node.has_body for node in nodes):
        return None
    poolings = [_pooling(name, inner) for name, inner in renamed.items()]
    return _with_nodes(model, graph, poolings + [_reading(node, renamed) for node in nodes])


def unmarked(model: bytes) -> bytes:
    """What ONNX Runtime has made of a marked model, without the poolings, and without conversions
    that only led to them or from them.

    Raises ValueError or IndexError for what is no ONNX model, or has bodies (of its functions).
    """
    graph = _graph(model)
    nodes = list(_nodes(graph))
    if any(node.has_body for node in nodes):
        raise ValueError("a body may read what is cut out")
    poolings = [node for node in nodes if node.name.startswith(_MARK)]
    renamed = {node.outputs[0]: node.inputs[0] for node in poolings}
    entered = {
        node.outputs[0]: node.inputs[0]
        for node in nodes
        if node.converts("ReorderInput") and node.outputs[0] in renamed.values()
    }
    for node in nodes:
        if node.converts("ReorderOutput") and renamed.get(node.inputs[0]) in entered:
            renamed[node.outputs[0]] = entered[renamed[node.inputs[0]]]
    left = [node for node in nodes if renamed.keys().isdisjoint(node.outputs)]
    readers = Counter(renamed.get(name, name) for node in left for name in node.inputs)
    left = [n for n in left if n.outputs[0] not in entered or readers[n.outputs[0]]]
    return _with_nodes(model, graph, [_reading(node, renamed) for node in left])


def _graph(model: bytes) -> memoryview:
    for number, value in fields(memoryview(model)):
        if number == _GRAPH and isinstance(value, memoryview):
            return value
    raise ValueError("no ONNX model")


def _nodes(graph: memoryview) -> Iterator[_Node]:
    for number, message in submessages(graph):
        if number == _NODE:
            yield _Node(
                bytes(message),
                text_field(message, _NODE_NAME) or "",
                text_field(message, _NODE_OPERATOR) or "",
                tuple(_texts(message, _NODE_INPUT)),
                tuple(_texts(message, _NODE_OUTPUT)),
            )


def _texts(message: memoryview, wanted: int) -> list[str]:
    return [str(value, "utf-8") for number, value in submessages(message) if number == wanted]


def _images(graph: memoryview) -> Iterator[str]:
    """Names of the graph's inputs that are float32 of rank 4."""
    for number, value in submessages(graph):
        name = text_field(value, _VALUE_NAME) if number == _INPUT else None
        if name and any(map(_is_image, _all(value, _VALUE_TYPE, _TENSOR_TYPE))):
            yield name


def _is_image(tensor: bytes) -> bool:
    found = list(fields(memoryview(tensor)))
    rank = len(list(_all(memoryview(tensor), _SHAPE, _DIMENSION)))
    return (_ELEMENT_TYPE, _FLOAT) in found and rank == _IMAGE_RANK


def _all(message: memoryview, outer: int, inner: int) -> Iterator[bytes]:
    for number, value in submessages(message):
        if number == outer:
            for within, part in submessages(value):
                if within == inner:
                    yield bytes(part)


def _pooling(name: str, inner: str) -> bytes:
    window = (
        field(_ATTRIBUTE_NAME, b"kernel_shape")
        + number_field(_ATTRIBUTE_INTS, 1) * 2
        + number_field(_ATTRIBUTE_TYPE, _INTS)
    )
    return (
        field(_NODE_INPUT, name.encode())
        + field(_NODE_OUTPUT, inner.encode())
        + field(_NODE_NAME, inner.encode())
        + field(_NODE_OPERATOR, b"MaxPool")
        + field(_NODE_ATTRIBUTE, window)
    )


def _reading(node: _Node, renamed: Mapping[str, str]) -> bytes:
    """The node's message, its inputs renamed."""
    if renamed.keys().isdisjoint(node.inputs):
        return node.message
    inputs = b"".join(field(_NODE_INPUT, renamed.get(n, n).encode()) for n in node.inputs)
    others = (part for number, _, part in parts(memoryview(node.message)) if number != _NODE_INPUT)
    return inputs + b"".join(others)


def _with_nodes(model: bytes, graph: memoryview, nodes: list[bytes]) -> bytes:
    """The model with other nodes, which come first in its graph, as do those of `marked`."""
    others = b"".join(part for number, _, part in parts(graph) if number != _NODE)
    edited = field(_GRAPH, b"".join(field(_NODE, node) for node in nodes) + others)
    return b"".join(
        edited if number == _GRAPH else part for number, _, part in parts(memoryview(model))
    )
