"""What a `Pad` operator adds, in every form that its operator sets have given it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from cnn.simplify.graph import OperatorGraph, attribute, given, has_input


@dataclass(frozen=True, slots=True)
class Pads:
    """Elements in front of and behind each axis, and their value in the mode `constant`."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    mode: str
    value: float


def pads_of(graph: OperatorGraph, node: onnx.NodeProto) -> Pads | None:
    """The pads of a `Pad`; None if they, or the rank of its input, are not known."""
    shape = graph.shape(node.input[0])
    pads, axes = given(graph, node, 1, "pads", 11), given(graph, node, 3, "", 18)
    if shape is None or pads is None or axes is None:
        return None
    rank = len(shape)
    if graph.opset < 11:
        value = attribute(node, "value", 0.0)
    elif has_input(node, 2):
        constant = graph.constant(node, 2)
        if constant is None:
            return None
        value = float(np.asarray(constant).reshape(-1)[0])
    else:
        value = 0.0
    begins, ends = [0] * rank, [0] * rank
    affected = [axis % rank for axis in axes] or list(range(rank))
    for number, axis in enumerate(affected):
        begins[axis], ends[axis] = pads[number], pads[len(affected) + number]
    mode = attribute(node, "mode", b"constant")
    assert isinstance(mode, bytes)  # noqa: S101 - ONNX knows no other
    assert isinstance(value, float)  # noqa: S101
    return Pads(tuple(begins), tuple(ends), mode.decode(), value)
