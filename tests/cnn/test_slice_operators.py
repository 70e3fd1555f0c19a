"""Every operator that works by output channel, in slices that are as awkward as can be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import cnn
from cnn.rewrite.rewrites import Slices
from tests.agreement.comparison import random_frame, relative_error
from tests.cnn.models import constant, model, node, run, save, value, weight

INT8, UINT8 = onnx.TensorProto.INT8, onnx.TensorProto.UINT8


def small(name: str, *shape: int, dtype: type[np.generic] = np.uint8) -> onnx.TensorProto:
    """8-bit values from 0 to 9."""
    return constant(name, np.random.default_rng(1).integers(0, 10, shape), dtype)


IMAGE = (1, 6, 8, 8)
SCALE, ZERO = constant("s", 0.1, np.float32), constant("z", 3, np.uint8)
CASES = {
    "Conv": (IMAGE, [node("Conv", ["x", "w", "b"], ["y"], "c")],
             [weight("w", 5, 6, 3, 3), weight("b", 5)], (2, 2, 1)),
    "Conv, depthwise": (IMAGE, [node("Conv", ["x", "w", "b"], ["y"], "c", group=6)],
                        [weight("w", 6, 1, 3, 3), weight("b", 6)], (1, 2, 3)),
    "Conv, whole groups": (IMAGE, [node("Conv", ["x", "w"], ["y"], "c", group=3)],
                           [weight("w", 12, 2, 1, 1)], (4, 8)),
    "Conv, within groups": (IMAGE, [node("Conv", ["x", "w"], ["y"], "c", group=2)],
                            [weight("w", 8, 3, 1, 1)], (1, 3, 2, 2)),
    "ConvTranspose": (IMAGE, [node("ConvTranspose", ["x", "w", "b"], ["y"], "c", strides=[2, 2])],
                      [weight("w", 6, 5, 2, 2), weight("b", 5)], (4, 1)),
    "ConvTranspose, whole groups": (IMAGE, [node("ConvTranspose", ["x", "w"], ["y"], "c", group=3)],
                                    [weight("w", 6, 2, 2, 2)], (2, 4)),
    "ConvTranspose, within groups": (
        IMAGE, [node("ConvTranspose", ["x", "w"], ["y"], "c", group=2)],
        [weight("w", 6, 4, 2, 2)], (1, 3, 4)),
    "Gemm": ((2, 6), [node("Gemm", ["x", "w", "b"], ["y"], "c", alpha=0.5)],
             [weight("w", 6, 7), weight("b", 7)], (3, 4)),
    "Gemm, transposed": ((6, 2), [node("Gemm", ["x", "w", "b"], ["y"], "c", transA=1, transB=1)],
                         [weight("w", 7, 6), weight("b", 2, 1)], (1, 6)),
    "MatMul": ((2, 6), [node("MatMul", ["x", "w"], ["y"], "c")], [weight("w", 6, 7)], (3, 4)),
    "MatMul, stacked": ((3, 2, 6), [node("MatMul", ["x", "w"], ["y"], "c")],
                        [weight("w", 3, 6, 7)], (3, 2, 2)),
    "BatchNormalization": (
        IMAGE, [node("BatchNormalization", ["x", *"abcd"], ["y"], "c")],
        [weight("a", 6), weight("b", 6), weight("c", 6),
         constant("d", [1, 2, 3, 4, 5, 6], np.float32)], (2, 4)),
    "InstanceNormalization": (IMAGE, [node("InstanceNormalization", ["x", "a", "b"], ["y"], "c")],
                              [weight("a", 6), weight("b", 6)], (5, 1)),
    "PRelu": (IMAGE, [node("PRelu", ["x", "a"], ["y"], "c")], [weight("a", 6, 1, 1)], (5, 1)),
    "Clip": (IMAGE, [node("Clip", ["x", "a", "b"], ["y"], "c")],
             [constant("a", -0.5, np.float32), constant("b", 0.5, np.float32)], (5, 1)),
    "Mul by a map": (IMAGE, [node("Mul", ["x", "a"], ["y"], "c")], [weight("a", 8, 8)], (2, 4)),
    "Mul by all": (IMAGE, [node("Mul", ["a", "x"], ["y"], "c")], [weight("a", 1, 6, 8, 8)], (2, 4)),
    "Sin": (IMAGE, [node("Sin", ["x"], ["y"], "c")], [], (5, 1)),
    "MaxPool": (IMAGE, [node("MaxPool", ["x"], ["y"], "c", kernel_shape=[2, 2])], [], (2, 4)),
    "GlobalAveragePool": (IMAGE, [node("GlobalAveragePool", ["x"], ["y"], "c")], [], (2, 4)),
    "Pad": (IMAGE, [node("Pad", ["x", "p"], ["y"], "c")],
            [constant("p", [0, 0, 1, 1, 0, 0, 2, 2])], (2, 4)),
    "Resize": (IMAGE, [node("Resize", ["x", "", "f"], ["y"], "c", mode="nearest")],
               [constant("f", [1, 1, 2, 2], np.float32)], (2, 4)),
    "Concat": (IMAGE, [node("Relu", ["x"], ["r"], "r"),
                       node("Concat", ["x", "r", "r"], ["y"], "c", axis=1)], [], (1, 8, 9)),
    "Concat of rows": (IMAGE, [node("Concat", ["x", "w"], ["y"], "c", axis=-2)],
                       [weight("w", 1, 6, 1, 8)], (2, 4)),
    "Where": (IMAGE, [node("Where", ["m", "x", "w"], ["y"], "c")],
              [constant("m", [[[[True]], [[False]]] * 3], np.bool_), weight("w", 1)], (1, 5)),
    "dequantised kernel": (
        IMAGE, [node("DequantizeLinear", ["q", "s6", "z6"], ["w"], "d", axis=0),
                node("Conv", ["x", "w"], ["y"], "c")],
        [small("q", 6, 6, 3, 3, dtype=np.int8), weight("s6", 6), constant("z6", [1] * 6, np.int8)],
        (2, 4)),
    "dequantised by one scale": (
        IMAGE, [node("DequantizeLinear", ["q", "s", "z"], ["w"], "d"),
                node("Conv", ["x", "w"], ["y"], "c")],
        [small("q", 6, 6, 3, 3), SCALE, ZERO], (2, 4)),
    "QuantizeLinear": (
        IMAGE, [node("QuantizeLinear", ["x", "s6", "z6"], ["q"], "c", axis=1),
                node("DequantizeLinear", ["q", "s6", "z6"], ["y"], "d", axis=1)],
        [constant("s6", [0.1, 0.2, 0.3] * 2, np.float32), constant("z6", [1] * 6, np.uint8)],
        (2, 4)),
    "QLinearConv": (
        IMAGE, [node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
                node("QLinearConv", ["q", "s", "z", "w", "s4", "z4", "s", "z", "b"], ["r"], "c"),
                node("DequantizeLinear", ["r", "s", "z"], ["y"], "d")],
        [SCALE, ZERO, small("w", 4, 6, 3, 3, dtype=np.int8),
         constant("s4", [0.01, 0.02, 0.03, 0.04], np.float32), constant("z4", [0] * 4, np.int8),
         constant("b", [100, 200, 300, 400], np.int32)], (1, 3)),
    "QLinearMatMul": (
        (2, 6), [node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
                 node("QLinearMatMul", ["q", "s", "z", "w", "s4", "z4", "s", "z"], ["r"], "c"),
                 node("DequantizeLinear", ["r", "s", "z"], ["y"], "d")],
        [SCALE, ZERO, small("w", 6, 4), constant("s4", 0.02, np.float32),
         constant("z4", 0, np.uint8)], (1, 3)),
    "ConvInteger": (
        IMAGE, [node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
                node("ConvInteger", ["q", "w", "z"], ["i"], "c"),
                node("Cast", ["i"], ["y"], "f", to=onnx.TensorProto.FLOAT)],
        [SCALE, ZERO, small("w", 5, 6, 3, 3)], (3, 2)),
    "MatMulInteger": (
        (2, 6), [node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"),
                 node("MatMulInteger", ["q", "w", "z"], ["i"], "c"),
                 node("Cast", ["i"], ["y"], "f", to=onnx.TensorProto.FLOAT)],
        [SCALE, ZERO, small("w", 6, 5)], (3, 2)),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_slices_compute_what_the_layer_computes(case: str, tmp_path: Path) -> None:
    shape, nodes, weights, channels = CASES[case]
    whole = read(shape, nodes, weights, tmp_path)
    assert whole.slice_channels()["c"].allow(channels)
    sliced = whole.rewritten([Slices("c", channels)])
    frame = random_frame(whole.network, seed=0)
    found, expected = (outputs(each, frame, tmp_path) for each in (sliced, whole))
    assert relative_error(found, expected) <= 1e-6
    parts = [layer for layer in sliced.network.layers if layer.part_of == "c" and layer.macs]
    assert sum(part.macs for part in parts) == whole.network.layer["c"].macs


@pytest.mark.parametrize(
    ("shape", "nodes", "weights"),
    [
        (IMAGE, [node("Softmax", ["x"], ["y"], "c", axis=1)], []),
        (IMAGE, [node("LRN", ["x"], ["y"], "c", size=3)], []),
        (IMAGE, [node("Transpose", ["x"], ["y"], "c", perm=[0, 2, 1, 3])], []),
        (IMAGE, [node("Flatten", ["x"], ["y"], "c")], []),
        ((1, 1, 8, 8), [node("Relu", ["x"], ["y"], "c")], []),
        ((6,), [node("Relu", ["x"], ["y"], "c")], []),
        (  # a slice might read nothing but the constant
            IMAGE,
            [node("Concat", ["x", "w"], ["y"], "c", axis=1)],
            [weight("w", 1, 3, 8, 8)],
        ),
        (
            IMAGE,
            [node("Resize", ["x", "", "", "f"], ["y"], "c", mode="nearest")],
            [constant("f", [1, 6, 16, 16])],
        ),
        (
            IMAGE,
            [node("Pad", ["x", "p"], ["y"], "c")],
            [constant("p", [0, 1, 0, 0, 0, 0, 0, 0])],
        ),
    ],
)
def test_other_layers_are_not_sliceable(
    shape: Sequence[int],
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    tmp_path: Path,
) -> None:
    assert "c" not in read(shape, nodes, weights, tmp_path).slice_channels()


def read(
    shape: Sequence[int],
    nodes: list[onnx.NodeProto],
    weights: list[onnx.TensorProto],
    directory: Path,
) -> cnn.Model:
    proto = model(nodes, [value("x", shape)], [value("y")], weights)
    return cnn.read(save(proto, directory))


def outputs(built: cnn.Model, frame: dict[str, np.ndarray], directory: Path) -> np.ndarray:
    network = built.network
    subnet = built.cut(network.layer, network.inputs, network.outputs, directory)
    return run(subnet.graph, frame)[0]
