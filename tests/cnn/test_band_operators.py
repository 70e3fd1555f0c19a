"""Operators of all kinds in bands: other ranks, eight bits, several outputs, old operator sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import cnn
from cnn.rewrite.rewrites import Bands
from tests.agreement.comparison import random_frame, relative_error
from tests.cnn.models import constant, model, node, run, save, value, weight

Nodes = Sequence[onnx.NodeProto]
Weights = Sequence[onnx.TensorProto]
EXACT = 1e-5


def check(
    directory: Path,
    nodes: Nodes,
    shape: Sequence[int],
    weights: Weights = (),
    rows: tuple[int, ...] = (),
    opset: int = 17,
) -> cnn.Model:
    """All layers in bands compute what they compute as a whole."""
    made = nodes[-1].output[0]
    proto = model(nodes, [value("x", shape)], [value(made)], weights, opset)
    whole = cnn.read(save(proto, directory))
    height = whole.network.tensors[made].shape[2]
    banded = whole.rewritten([Bands(tuple(whole.network.layer), rows or (height - 3, 3))])
    frame = random_frame(whole.network, seed=0)
    expected, found = (_outputs(each, frame, directory / "cut") for each in (whole, banded))
    assert relative_error(found, expected) <= EXACT
    return banded


def _outputs(built: cnn.Model, frame: dict[str, np.ndarray], directory: Path) -> np.ndarray:
    network = built.network
    subnet = built.cut(network.layer, network.inputs, network.outputs, directory)
    return run(subnet.graph, frame)[0]


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_signals_images_and_volumes(axes: int, tmp_path: Path) -> None:
    kernel = weight("k", 2, 2, *[3] * axes)
    parameters = [weight(name, 2) for name in ("s", "b", "m")]
    variance = constant("v", [0.5, 2.0], np.float32)
    nodes = [
        node("BatchNormalization", ["x", "s", "b", "m", "v"], ["n"], "norm"),
        node("Conv", ["n", "k"], ["c"], "conv", pads=[1] * 2 * axes, strides=[1] * axes),
        node("MaxPool", ["c"], ["y"], "pool", kernel_shape=[2] * axes, strides=[2] * axes),
    ]
    check(tmp_path, nodes, (1, 2, *[12] * axes), [kernel, *parameters, variance])


def test_eight_bit_weights_are_prepared_in_every_band(tmp_path: Path) -> None:
    kernel = np.random.default_rng(0).integers(-99, 99, (4, 3, 3, 3)).astype(np.int8)
    weights = [
        constant("k8", kernel, np.int8),
        constant("scales", [0.01, 0.02, 0.03, 0.04], np.float32),
        constant("zeros", [0, 1, 2, 3], np.int8),
        constant("one", 0.05, np.float32),
        constant("none", 128, np.uint8),
    ]
    nodes = [
        node("QuantizeLinear", ["x", "one", "none"], ["q"], "quantise"),
        node("DequantizeLinear", ["q", "one", "none"], ["d"], "back"),
        node("DequantizeLinear", ["k8", "scales", "zeros"], ["k"], "kernel", axis=0),
        node("Conv", ["d", "k"], ["y"], "conv", pads=[1] * 4),
    ]
    banded = check(tmp_path, nodes, (1, 3, 10, 6), weights)
    assert "k8" in banded.network.layer["conv[2/2]"].weights


def test_integer_convolutions(tmp_path: Path) -> None:
    kernel = np.random.default_rng(0).integers(-9, 9, (4, 3, 3, 3)).astype(np.int8)
    weights = [
        constant("k", kernel, np.int8),
        constant("one", 0.05, np.float32),
        constant("tenth", 0.1, np.float32),
        constant("zero", 120, np.uint8),
        constant("none", 0, np.int8),
    ]
    names = ["q", "one", "zero", "k", "tenth", "none", "tenth", "zero"]
    nodes = [
        node("QuantizeLinear", ["x", "one", "zero"], ["q"], "quantise"),
        node("QLinearConv", names, ["c"], "conv", pads=[1] * 4, strides=[2, 1]),
        node("DequantizeLinear", ["c", "tenth", "zero"], ["y"], "back"),
    ]
    check(tmp_path, nodes, (1, 3, 11, 6), weights)


def test_two_outputs_inside(tmp_path: Path) -> None:
    nodes = [
        node("Split", ["x"], ["a", "b"], "split", axis=1),
        node("Conv", ["a", "k"], ["c"], "conv", pads=[1] * 4),
        node("Concat", ["c", "b"], ["y"], "concat", axis=1),
    ]
    check(tmp_path, nodes, (1, 4, 9, 5), [weight("k", 2, 2, 3, 3)], opset=11)


def test_sums_over_channels_gate_every_row(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMean", ["x"], ["m"], "mean", axes=[1], keepdims=1),
        node("Clip", ["m", "low", "high"], ["g"], "clip"),
        node("Mul", ["x", "g"], ["y"], "gate"),
    ]
    weights = [constant("low", -0.2, np.float32), constant("high", 0.2, np.float32)]
    check(tmp_path, nodes, (1, 4, 9, 5), weights)


def test_a_constant_for_every_row_is_cut_for_its_band(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "places"], ["y"], "add"), node("Relu", ["y"], ["z"], "relu")]
    banded = check(tmp_path, nodes, (1, 4, 9, 5), [weight("places", 9, 5)])
    held = [banded.network.weights[x].shape for x in banded.network.weights]
    assert sorted(held) == [(3, 5), (6, 5)]


@pytest.mark.parametrize("opset", [7, 9])
def test_old_operator_sets(opset: int, tmp_path: Path) -> None:
    pads = [0, 0, 1, 2, 0, 0, 2, 1]
    nodes = [
        node("Pad", ["x"], ["p"], "pad", pads=pads, value=0.5),
        node("Conv", ["p", "k"], ["c"], "conv", pads=[1] * 4),
        node("Softmax", ["c"], ["s"], "along_the_width", axis=3),
    ]
    scales = [1.0, 1.0, 2.0, 2.0]
    if opset < 9:
        nodes.append(node("Upsample", ["s"], ["y"], "up", scales=scales, mode="nearest"))
    else:
        nodes.append(node("Upsample", ["s", "scales"], ["y"], "up", mode="nearest"))
    weights = [weight("k", 2, 2, 3, 3)]
    weights += [constant("scales", scales, np.float32)] if opset >= 9 else []
    check(tmp_path, nodes, (1, 2, 8, 5), weights, (3, 11, 8), opset)


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (node("Resize", ["r", "", "s"], ["y"], "l", mode="linear"), "interpolates between rows"),
        (node("Resize", ["r", "", "odd"], ["y"], "l"), "repeat each row a whole number of times"),
        (node("Pad", ["r", "pads"], ["y"], "l", mode="reflect"), "pads with rows of its input"),
        (node("Pad", ["r", "cuts"], ["y"], "l"), "cuts rows off"),
        (node("Add", ["r", "t"], ["y"], "l"), "'t' has another number of axes"),
        (node("Conv", ["r", "f"], ["y"], "l", kernel_shape=[1, 1]), "'f' is neither a constant"),
        (node("ReduceMax", ["r"], ["y"], "l", axes=[1], keepdims=0), "drops axes"),
        (node("ConvTranspose", ["r", "k"], ["y"], "l", auto_pad="SAME_UPPER"), "automatic"),
        (node("Concat", ["r", "r"], ["y"], "l", axis=2), "works along the rows"),
        (node("Einsum", ["r"], ["y"], "l", equation="abcd->abdc"), "is not known"),
    ],
)
def test_what_has_no_bands_says_why(made: onnx.NodeProto, sentence: str, tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"], "relu"),
        node("ReduceMean", ["x"], ["t"], "mean", axes=[0], keepdims=0),
        node("ReduceMean", ["x"], ["f"], "filter", axes=[2, 3], keepdims=1),
        made,
    ]
    weights = [
        constant("s", [1.0, 1.0, 2.0, 1.0], np.float32),
        constant("odd", [1.0, 1.0, 1.5, 1.0], np.float32),
        constant("pads", [0, 0, 1, 0, 0, 0, 1, 0]),
        constant("cuts", [0, 0, -1, 0, 0, 0, 0, 0]),
        weight("k", 3, 3, 2, 2),
    ]
    read = {name for each in nodes for name in each.input}
    proto = model(
        [each for each in nodes if each is made or read & {*each.output}],
        [value("x", (1, 3, 8, 5))],
        [value("y")],
        [x for x in weights if x.name in made.input],
    )
    whole = cnn.read(save(proto, tmp_path))
    with pytest.raises(cnn.ModelError, match=sentence):
        whole.fused(("l",))
    assert "l" not in whole.band_layers()
