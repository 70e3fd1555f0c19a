"""Scales of resizings for which ONNX's inference and ONNX Runtime come to different sizes.

An output has ⌊size · scale⌋ elements. 10 · 2.3 is 23 in single precision, in which ONNX Runtime
multiplies, but 2.3 itself is 2.29999995 there, so that inference says 22.
"""

from __future__ import annotations

import numpy as np
import onnx

from cnn.simplify.graph import OperatorGraph, integers

_PLACES = {"Upsample": 1, "Resize": 2}
"""Operator → its input that holds the scales; before operator set 11 it was the second of both."""


def agree_on_scales(graph: OperatorGraph, node: onnx.NodeProto) -> None:
    """Raise constant scales to the next number for which both are what ONNX Runtime makes."""
    if node.op_type not in _PLACES:
        return
    place = _PLACES[node.op_type] if graph.opset >= 11 else 1
    shape, scales = graph.shape(node.input[0]), graph.constant(node, place)
    if shape is None or scales is None:
        return
    shape = tuple(shape[axis] for axis in integers(node, "axes", range(len(shape))))
    if len(shape) != scales.size:
        return
    settled = [_settled(np.float32(x), n) for x, n in zip(scales.reshape(-1), shape, strict=True)]
    if not np.array_equal(settled, scales.reshape(-1)):
        array = np.array(settled, np.float32)
        node.input[place] = graph.add_constant(f"{node.output[0]}_scales", array)


def _settled(scale: np.float32, size: int) -> np.float32:
    made = np.floor(np.float32(size) * scale)
    while np.floor(float(scale) * size) < made:
        scale = np.nextafter(scale, np.float32(np.inf))
    return scale
