"""Make the names of operators unique, and shorten names that are too long for a message.

ONNX files need not have either property.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import onnx

from cnn.network import Array
from cnn.operators.bodies import bodies

_LONGEST = 1000
"""Characters. Rewrites and merging append to names, and a message to an agent allows 4096."""


def make_names_unique(nodes: Iterable[onnx.NodeProto]) -> None:
    """Number operators of one name, in bodies too: `conv`, `conv#2`; empty names stay empty.

    ONNX Runtime refuses a graph with two operators of one name.
    """
    found = list(nodes)
    taken = {node.name for node in found}
    seen: dict[str, int] = {}
    for node in found:
        called = node.name
        number = seen.get(called, 0) + 1
        if called and number > 1:
            while f"{called}#{number}" in taken:
                number += 1
            node.name = f"{called}#{number}"
            taken.add(node.name)
        seen[called] = number
        for body in bodies(node):
            make_names_unique(body.node)


def short(name: str) -> str:
    """Return the name itself, or its beginning and a hash of the whole if it is too long."""
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: _LONGEST - len(digest) - 1]}…{digest}"


def shorten(graph: onnx.GraphProto, weights: dict[str, Array]) -> None:
    """Shorten the names of tensors, operators (in bodies too) and weights, in place."""
    for name in [name for name in weights if len(name) > _LONGEST]:
        weights[short(name)] = weights.pop(name)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        if len(value.name) > _LONGEST:
            value.name = short(value.name)
    for node in graph.node:
        for names in (node.input, node.output):
            if any(len(name) > _LONGEST for name in names):
                names[:] = list(map(short, names))
        if len(node.name) > _LONGEST:
            node.name = short(node.name)
        for body in bodies(node):
            shorten(body, {})
