"""Small networks for the launcher's tests, described without ONNX or written as ONNX files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cnn.network import Layer, Network, Tensor

CONVOLUTIONS = 4
WIDTHS = (16, 4000, 1000, 3000, 700, 2400, 100)
"""The features before and after each matrix product of `write_classifier`."""

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def network_of(
    input_shape: tuple[int, ...],
    *,
    dtype: str = "float32",
    output_shape: tuple[int, ...] = (1, 10),
    inputs: int = 1,
) -> Network:
    """A network of one layer with inputs of one shape, called x (or x0, x1, …), and an output y."""
    names = ("x",) if inputs == 1 else tuple(f"x{number}" for number in range(inputs))
    tensors = {name: Tensor(name, input_shape, dtype) for name in names}
    tensors["y"] = Tensor("y", output_shape, "float32")
    return Network("net", (Layer("only", "Op", names, ("y",)),), tensors, {}, names, ("y",))


def write_branches(path: Path, seed: int = 0) -> Path:
    """A network of seven layers with two inputs, two outputs and two branches that meet.

    stem → left, right → join → head (output `score`, [1, 4]); aux: right → output `aux/map`. The
    second input, `shift`, is added in `join`.
    """
    generator = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    def conv(name: str, source: str, kernel: str, target: str) -> onnx.NodeProto:
        return helper.make_node("Conv", [source, kernel], [target], name, pads=[1, 1, 1, 1])

    nodes = [
        conv("stem", "image", "w_stem", "stem_out"),
        conv("left", "stem_out", "w_left", "left_out"),
        conv("right", "stem_out", "w_right", "right_out"),
        helper.make_node("Sum", ["left_out", "right_out", "shift"], ["joined"], "join"),
        helper.make_node("GlobalAveragePool", ["joined"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["score"], "head"),
        helper.make_node("Relu", ["right_out"], ["aux/map"], "aux"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])
    shift = helper.make_tensor_value_info("shift", TensorProto.FLOAT, [1, 4, 8, 8])
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, [1, 4])
    aux = helper.make_tensor_value_info("aux/map", TensorProto.FLOAT, [1, 4, 8, 8])
    weights = [
        weight("w_stem", 4, 3, 3, 3), weight("w_left", 4, 4, 3, 3), weight("w_right", 4, 4, 3, 3),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "branches", [image, shift], [score, aux], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return path


def write_classifier(path: Path) -> Path:
    """Four convolutions, which have the work, and six matrix products after them, which have the
    weights: 45 MB."""
    generator = np.random.default_rng(0)
    shapes = [(16, 16, 3, 3)] * CONVOLUTIONS + [*pairwise(WIDTHS)]
    weights = [
        numpy_helper.from_array(
            generator.standard_normal(shape, np.float32) / np.float32(np.prod(shape[1:]) ** 0.5),
            f"w{number}",
        )
        for number, shape in enumerate(shapes)
    ]
    names = ["x", *(f"t{number}" for number in range(1, len(shapes))), "y"]
    nodes = [
        helper.make_node("GlobalAveragePool", [f"t{CONVOLUTIONS}"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
    ]
    for number, (source, target) in enumerate(pairwise(names)):
        given = ["flat" if number == CONVOLUTIONS else source, f"w{number}"]
        if number < CONVOLUTIONS:
            made = helper.make_node("Conv", given, [target], pads=[1, 1, 1, 1])
        else:
            made = helper.make_node("MatMul", given, [target])
        made.name = f"layer{number}"
        nodes.insert(number + 2 * (number >= CONVOLUTIONS), made)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 64, 64])
    scores = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, WIDTHS[-1]])
    graph = helper.make_graph(nodes, "net", [image], [scores], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, str(path))
    return path
