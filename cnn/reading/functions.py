"""Inline the functions of a model.

Exporters write a function for each module of their framework; no device needs them. A few nested
functions can expand to any number of operators, so the operators are counted before anything is
inlined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import inliner

from cnn.errors import ModelError

MOST_OPERATORS = 1_000_000
"""The most operators after inlining; the largest networks of today have some ten thousand."""

_DEEPEST = 100
"""The deepest nesting of function calls."""

_Key = tuple[str, str, str]


def inlined(proto: onnx.ModelProto, label: str) -> onnx.ModelProto:
    """Return the model with its functions inlined; `proto` itself if it has none.

    Raises `ModelError` if functions call each other in a circle, expand to more than
    `MOST_OPERATORS` operators, or cannot be inlined.
    """
    if not proto.functions:
        return proto
    defaults = (value for function in proto.functions for value in function.attribute_proto)
    if any(value.HasField("g") or value.graphs for value in defaults):
        raise ModelError(f"{label}: a function of the model takes a graph; export it without")
    sizes = _Sizes(proto, label)
    if sizes.of(proto.graph.node) > MOST_OPERATORS:
        raise ModelError(
            f"{label}: the model's functions expand to more than {MOST_OPERATORS} operators"
        )
    try:
        flat = inliner.inline_local_functions(proto)
    except Exception as error:  # its C++ errors share no base class but this
        raise ModelError(
            f"{label}: the model's functions cannot be inlined: {' '.join(str(error).split())}"
        ) from error
    left = {(x.domain, x.name) for x in flat.functions}
    for node in _nodes(flat.graph.node):
        if (node.domain, node.op_type) in left:
            raise ModelError(
                f"{label}: the function {node.op_type!r} was written for another operator set than "
                "the model; export the model with one operator set"
            )
    flat.ClearField("functions")
    return flat


class _Sizes:
    """Counts the operators that functions expand to, each function once."""

    def __init__(self, proto: onnx.ModelProto, label: str) -> None:
        self._functions = {(f.domain, f.name, f.overload): f for f in proto.functions}
        self._label = label
        self._found: dict[_Key, int] = {}
        self._under_way: list[_Key] = []

    def of(self, nodes: Iterable[onnx.NodeProto]) -> int:
        """Return the number of operators of these nodes after inlining."""
        return sum(self._of_one(node) for node in _nodes(nodes))

    def _of_one(self, node: onnx.NodeProto) -> int:
        key = (node.domain, node.op_type, node.overload)
        function = self._functions.get(key)
        if function is None:
            return 1
        if key in self._under_way or len(self._under_way) > _DEEPEST:
            raise ModelError(
                f"{self._label}: the model's function {node.op_type!r} calls itself, or functions "
                f"call each other more than {_DEEPEST} deep; export the model again"
            )
        if key not in self._found:
            self._under_way.append(key)
            self._found[key] = self.of(function.node)
            self._under_way.pop()
        return self._found[key]


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield these nodes and those in their bodies, whatever type their attributes claim to have."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)
