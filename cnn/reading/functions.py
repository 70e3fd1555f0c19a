"""Inline the functions of a model.

Exporters write a function for each module of their framework; no device needs them. A few nested
functions can expand to any number of operators, so the operators are counted before anything is
inlined.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import onnx
from onnx import inliner

from cnn.errors import ModelError
from cnn.operators.standard import STANDARD_DOMAINS, standard_opset
from cnn.operators.versions import common_version

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
    _agree_on_version(proto)
    try:
        flat = inliner.inline_local_functions(proto)
        if _call_left(flat):
            with contextlib.suppress(Exception):  # it lacks types that only the whole model has
                flat = inliner.inline_local_functions(proto, convert_version=True)
    except Exception as error:  # its C++ errors share no base class but this
        raise ModelError(
            f"{label}: the model's functions cannot be inlined: {' '.join(str(error).split())}"
        ) from error
    if (left := _call_left(flat)) is not None:
        raise ModelError(
            f"{label}: the function {left.op_type!r} was written for another operator set than "
            "the model, and one of its operators has changed since; export the model with one "
            "operator set"
        )
    flat.ClearField("functions")
    return flat


def _agree_on_version(proto: onnx.ModelProto) -> None:
    """Let the model and its functions state one version of ONNX's operator set, in place.

    It is one in which all their operators mean the same as in their own; without one, all keep
    theirs. The inliner leaves functions of another version alone.
    """
    parts = [(proto.opset_import, proto.graph.node)]
    parts += [(function.opset_import, function.node) for function in proto.functions]
    own = {(function.domain, function.name) for function in proto.functions}
    versions = [standard_opset(imports) for imports, _ in parts]
    if len(set(filter(None, versions))) < 2:
        return
    common = common_version(
        {
            (node.op_type, version)
            for (_, nodes), version in zip(parts, versions, strict=True)
            for node in _nodes(nodes)
            if node.domain in STANDARD_DOMAINS and (node.domain, node.op_type) not in own
        }
    )
    if common is not None:
        for entry in (entry for imports, _ in parts for entry in imports):
            if entry.domain in STANDARD_DOMAINS:
                entry.version = common


def _call_left(proto: onnx.ModelProto) -> onnx.NodeProto | None:
    """Return a node that still calls a function of the model."""
    own = {(function.domain, function.name) for function in proto.functions}
    calls = (node for node in _nodes(proto.graph.node) if (node.domain, node.op_type) in own)
    return next(calls, None)


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
