"""Read and change the attributes of an operator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import helper

Value = float | int | bytes | list[int] | list[float] | list[bytes] | onnx.TensorProto | None


def has_input(node: onnx.NodeProto, index: int) -> bool:
    """Whether a node has input `index`, which may be optional."""
    return index < len(node.input) and bool(node.input[index])


def attribute(node: onnx.NodeProto, name: str, default: Value = None) -> Value:
    """Return the value of a node's attribute; text is bytes."""
    for found in node.attribute:
        if found.name == name:
            value: Value = helper.get_attribute_value(found)
            return list(value) if isinstance(value, (list, tuple)) else value
    return default


def integers(node: onnx.NodeProto, name: str, default: Iterable[int] = ()) -> list[int]:
    """Return the value of an attribute that is a list of integers."""
    value = attribute(node, name)
    return [int(x) for x in value] if isinstance(value, list) else list(default)


def integer(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    """Return the value of an attribute that is an integer."""
    value = attribute(node, name)
    return value if isinstance(value, int) else default


def change_attributes(
    node: onnx.NodeProto, changes: Mapping[str, int | Sequence[int] | None]
) -> None:
    """Set attributes in place, and remove those whose value is None."""
    kept = [entry for entry in node.attribute if entry.name not in changes]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(
        helper.make_attribute(name, value) for name, value in changes.items() if value is not None
    )
