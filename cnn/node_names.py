"""Names of operators, which exporters need not make unique and engines want to be so."""

from __future__ import annotations

from collections.abc import Iterable

import onnx


def tell_apart(nodes: Iterable[onnx.NodeProto]) -> None:
    """Give operators of one name names of their own, in their bodies too: `conv`, `conv#2`.

    ONNX Runtime refuses a graph with two operators of one name. Operators without a name stay so.
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
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                tell_apart(attribute.g.node)
