"""Writes small networks of convolutions as ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def convolutions(
    path: Path,
    layers: int,
    filters: int,
    side: int,
    *,
    taps: int = 3,
    stride: int = 1,
    has_weights: bool = True,
) -> Path:
    """Write `layers` convolutions of `filters` filters on images [1, 3, side, side]; return `path`.

    With weights, which are drawn at random, the result is the mean of each map; without, weights
    are constants that the file only describes, and the result is the last map.
    """
    draw = np.random.default_rng(0)
    nodes, weights, source = [], [], "image"
    for number in range(layers):
        weight, made = f"weight{number}", f"map{number}"
        shape = (filters, filters if number else 3, taps, taps)
        if has_weights:
            value = draw.normal(0, 0.1, shape).astype(np.float32)
            weights.append(numpy_helper.from_array(value, weight))
        else:
            size = numpy_helper.from_array(np.array(shape, np.int64), f"{weight}.shape")
            weights.append(size)
            nodes.append(helper.make_node("ConstantOfShape", [size.name], [weight]))
        nodes.append(
            helper.make_node(
                "Conv", [source, weight], [made], f"conv{number}", kernel_shape=[taps, taps],
                pads=[taps // 2] * 4, strides=[stride] * 2,
            )
        )  # fmt: skip
        source = made
    result, shown = source, [1, filters, side, side]
    if has_weights:
        nodes.append(helper.make_node("GlobalAveragePool", [source], ["mean"], "pool"))
        result, shown = "mean", [1, filters, 1, 1]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, side, side])
    output = helper.make_tensor_value_info(result, TensorProto.FLOAT, shown)
    graph = helper.make_graph(nodes, "convolutions", [image], [output], weights)
    opset = helper.make_opsetid("", 13)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
    return path
