"""Writes small networks as ONNX: convolutions, and a detector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
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


CLASSES = 80

SCARCE = 4.8
"""What the logits of a detector's classes lose, so that one cell in a hundred holds an object."""


def detector(path: Path, *, side: int = 640, filters: int = 64, layers: int = 4) -> Path:
    """Write a detector of YOLOv8's form: `images` [1, 3, side, side], `o` [1, 84, cells]; return
    `path`.

    It computes as much as YOLOv8n (4 billion multiply-accumulates at 640 × 640). Its weights are
    random; about one cell in a hundred, of 8 × 8 pixels, holds an object.
    """
    draw = np.random.default_rng(0)
    nodes, constants, source, inputs = [], [], "images", 3

    def constant(name: str, value: NDArray[Any]) -> str:
        constants.append(numpy_helper.from_array(value, name))
        return name

    strides = (2, 2, *(1,) * layers, 2)
    for number, stride in enumerate(strides):
        spread = (2 / (9 * inputs)) ** 0.5
        shape = (filters, inputs, 3, 3)
        weight = constant(f"w{number}", draw.normal(0, spread, shape).astype(np.float32))
        nodes += [
            helper.make_node(
                "Conv", [source, weight], [f"c{number}"], f"conv{number}", pads=[1] * 4,
                strides=[stride] * 2,
            ),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"),
        ]  # fmt: skip
        source, inputs = f"r{number}", filters
    head = draw.normal(0, 0.1 / filters**0.5, (4 + CLASSES, filters, 1, 1)).astype(np.float32)
    cells = (side // 8) ** 2
    level = draw.normal(0, 1, (1, 4 + CLASSES, cells)).astype(np.float32)
    level[:, 4:] -= SCARCE
    nodes += [
        helper.make_node("Conv", [source, constant("head", head)], ["h"], "head"),
        helper.make_node(
            "Reshape", ["h", constant("shape", np.array([1, 4 + CLASSES, cells]))], ["f"], "flat"
        ),
        helper.make_node("Add", ["f", constant("level", level)], ["l"], "levelled"),
        helper.make_node("Sigmoid", ["l"], ["s"], "sigmoid"),
        helper.make_node("Mul", ["s", constant("unit", _units(side))], ["o"], "scaled"),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, side, side])],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [1, 4 + CLASSES, cells])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    names = {number: f"class{number}" for number in range(CLASSES)}
    helper.set_model_props(model, {"task": "detect", "names": str(names), "stride": "32"})
    onnx.save(model, str(path))
    return path


def _units(side: int) -> NDArray[Any]:
    """Return what scales centres to the image, sizes to an eighth of it, and scores by 1."""
    boxes = np.array([side, side, side / 8, side / 8], np.float32)
    return np.concatenate([boxes, np.ones(CLASSES, np.float32)]).reshape(1, -1, 1)
