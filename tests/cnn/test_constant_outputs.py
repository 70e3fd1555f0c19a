"""Outputs that depend on no input are known when the model has been read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import cnn
from cnn.merge import merge
from cnn.rewrite.rewrites import Copies
from tests.cnn.models import INT64, constant, model, node, save, value, weight
from tests.cnn.whole import agrees


def with_anchors(directory: Path, name: str = "anchored.onnx") -> Path:
    """Scores of the input; and anchors, made of constants and of shapes, and a weight as it is."""
    nodes = [
        node("Conv", ["x", "w"], ["scores"], "head"),
        node("Shape", ["scores"], ["s"], start=2),
        node("Cast", ["s"], ["sizes"], to=onnx.TensorProto.FLOAT),
        node("Mul", ["sizes", "steps"], ["anchors"]),
    ]
    outputs = [value("w", (4, 3, 1, 1)), value("scores"), value("anchors"), value("s", None, INT64)]
    weights = [weight("w", 4, 3, 1, 1), constant("steps", [[1, 2], [3, 4]], np.float32)]
    return save(model(nodes, [value("x", (1, 3, 8, 6))], outputs, weights), directory, name)


def test_anchors_are_read_and_not_run(tmp_path: Path) -> None:
    found = cnn.read(with_anchors(tmp_path))
    assert found.network.outputs == ("scores",)
    assert [layer.name for layer in found.network.layers] == ["head"]
    assert found.outputs == ("scores", "w", "anchors", "s")
    np.testing.assert_array_equal(found.constant_outputs["anchors"], [[8, 12], [24, 24]])
    agrees(found, tmp_path)


@pytest.mark.parametrize("opset", [10, 13, 18, 19, 21])
def test_a_dequantised_weight_is_one_though_layers_would_keep_it_small(
    tmp_path: Path, opset: int
) -> None:
    nodes = [
        node("DequantizeLinear", ["q", "scale"], ["table"]),
        node("Transpose", ["table"], ["turned"]),
        node("MatMul", ["x", "table"], ["y"]),
    ]
    weights = [constant("q", [[1, -2], [3, 4]], np.int8), constant("scale", 0.5, np.float32)]
    proto = model(nodes, [value("x", (1, 2))], [value("turned"), value("y")], weights, opset=opset)
    found = cnn.read(save(proto, tmp_path))
    np.testing.assert_array_equal(found.constant_outputs["turned"], [[0.5, 1.5], [-1, 2]])
    agrees(found, tmp_path)


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_a_weight_dequantised_by_a_scale_per_channel_is_one(tmp_path: Path, opset: int) -> None:
    nodes = [
        node("DequantizeLinear", ["q", "scales", "zeros"], ["table"], axis=0),
        node("Relu", ["x"], ["y"]),
    ]
    weights = [
        constant("q", [[1, 2], [3, 4]], np.uint8),
        constant("scales", [0.5, 0.25], np.float32),
        constant("zeros", [1, 2], np.uint8),
    ]
    proto = model(nodes, [value("x", (1, 2))], [value("table"), value("y")], weights, opset=opset)
    found = cnn.read(save(proto, tmp_path))
    np.testing.assert_array_equal(found.constant_outputs["table"], [[0, 0.5], [0.25, 0.5]])
    agrees(found, tmp_path)


def test_networks_side_by_side_have_the_constants_of_both(tmp_path: Path) -> None:
    one = cnn.read(with_anchors(tmp_path)).with_name("one")
    other = cnn.read(with_anchors(tmp_path)).with_name("other")
    merged = merge([one, other])
    assert merged.network.outputs == ("one/scores", "other/scores")
    assert {"one/anchors", "other/s"} < merged.constant_outputs.keys()


def test_copies_of_a_network_have_the_constants_once(tmp_path: Path) -> None:
    copied = cnn.read(with_anchors(tmp_path)).rewritten([Copies((1, 1))])
    assert copied.network.outputs == ("scores@1", "scores@2")
    assert copied.constant_outputs.keys() == {"w", "anchors", "s"}


def test_what_cannot_be_computed_beforehand_is_refused_with_what_helps(tmp_path: Path) -> None:
    text = numpy_helper.from_array(np.array(["cat", "dog"], object), "names")
    nodes = [node("Relu", ["x"], ["y"]), node("Constant", [], ["labels"], value=text)]
    labels = value("labels", (2,), onnx.TensorProto.STRING)
    path = save(model(nodes, [value("x", (1, 2))], [value("y"), labels]), tmp_path)
    with pytest.raises(cnn.ModelError, match=r"output 'labels' depends on no input.*`outputs`"):
        cnn.read(path)
    assert cnn.read(path, outputs=["y"]).outputs == ("y",)


def test_an_output_that_is_an_input_gets_another_name(tmp_path: Path) -> None:
    ends = [value("x", (1, 2)), value("y")]
    path = save(model([node("Relu", ["x"], ["y"])], [value("x", (1, 2))], ends), tmp_path)
    found = cnn.read(path)
    assert found.network.inputs == ("x",)
    assert found.network.outputs == ("x_output", "y")
    agrees(found, tmp_path)


def test_one_tensor_may_be_two_outputs(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Identity", ["y"], ["z"])]
    ends = [value("y"), value("z")]
    found = cnn.read(save(model(nodes, [value("x", (1, 2))], ends), tmp_path))
    assert found.outputs == ("y", "z")
    agrees(found, tmp_path)


def test_an_output_that_is_listed_twice_is_one(tmp_path: Path) -> None:
    ends = [value("y"), value("y")]
    proto = model([node("Relu", ["x"], ["y"])], [value("x", (1, 2))], ends)
    found = cnn.read(save(proto, tmp_path))
    assert found.outputs == ("y",)
    agrees(found, tmp_path)
