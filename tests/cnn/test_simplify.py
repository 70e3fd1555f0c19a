"""Simplification changes how a network is written, never what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings

import cnn
from benchmarks.agreement import LIMIT, random_frame, relative_error
from tests.cnn.models import constant, convolution, model, node, run, save, value, weight
from tests.networks import save as save_drawn
from tests.networks import small_models


def whole_model_agrees(built: cnn.Model, directory: Path) -> None:
    network = built.network
    frame = random_frame(network, seed=0)
    subnet = built.cut(network.layer, network.inputs, network.outputs, directory)
    expected = run(built.write_original(directory), frame)
    for found, original in zip(run(subnet.graph, frame), expected, strict=True):
        assert relative_error(found, original) <= LIMIT


@given(proto=small_models())
@settings(
    max_examples=25,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
def test_any_small_network_computes_the_same(proto: onnx.ModelProto, tmp_path: Path) -> None:
    built = cnn.read(save_drawn(proto, tmp_path))
    assert list(built.network.outputs) == [output.name for output in proto.graph.output]
    whole_model_agrees(built, tmp_path)


def test_identities_and_dropouts_are_gone(tmp_path: Path) -> None:
    more = [
        node("Dropout", ["y"], ["d"]),
        node("Identity", ["d"], ["i"]),
        node("Relu", ["i"], ["z"]),
    ]
    built = cnn.read(save(convolution((1, 3, 8, 8), *more), tmp_path))
    assert [layer.operator for layer in built.network.layers] == ["Conv", "Relu"]


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 1, 1), (1, 4, 1, 1)])
@pytest.mark.parametrize("operator", ["Mul", "Add", "Sub", "Div"])
@pytest.mark.parametrize("kernel", ["Conv", "ConvTranspose"])
def test_a_constant_behind_a_kernel_is_not_taken_for_one_per_channel(
    kernel: str, operator: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Channels, rows and columns are four each."""
    nodes = [node(kernel, ["x", "w"], ["y"], "c"), node(operator, ["y", "f"], ["z"])]
    weights = [weight("w", 4, 4, 1, 1), weight("f", *shape, seed=1)]
    proto = model(nodes, [value("x", (1, 4, 4, 4))], [value("z")], weights)
    whole_model_agrees(cnn.read(save(proto, tmp_path)), tmp_path)


def test_nor_is_one_behind_a_matrix_that_is_reshaped(tmp_path: Path) -> None:
    nodes = [
        node("Gemm", ["x", "w"], ["y"], transB=1),
        node("Reshape", ["y", "s"], ["r"]),
        node("Mul", ["r", "f"], ["z"]),
    ]
    weights = [weight("w", 4, 5), constant("s", [4, 2, 2, 1]), weight("f", 4, seed=1)]
    proto = model(nodes, [value("x", (4, 5))], [value("z")], weights)
    whole_model_agrees(cnn.read(save(proto, tmp_path)), tmp_path)


def test_a_large_kernel_behind_a_batch_norm_is_fused_all_the_same(tmp_path: Path) -> None:
    """Kernels above 1 MiB that nothing fuses go round onnxslim; this one must not."""
    names = ["s", "b", "m"]
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("BatchNormalization", ["c", *names, "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("Conv", ["r", "u"], ["y"]),
    ]
    weights = [weight("w", 600, 600, 1, 1), weight("u", 500, 600, 1, 1)]
    weights += [weight(name, 600) for name in names] + [constant("v", np.ones(600), np.float32)]
    proto = model(nodes, [value("x", (1, 600, 2, 2))], [value("y")], weights)
    built = cnn.read(save(proto, tmp_path))
    assert [layer.operator for layer in built.network.layers] == ["Conv", "Relu", "Conv"]
    assert len(built.network.layers[0].weights) == 2
    assert built.network.layers[2].weights == ("u",)
    whole_model_agrees(built, tmp_path)


def quantised() -> onnx.ModelProto:
    """Two convolutions that share an 8-bit kernel between QuantizeLinear and DequantizeLinear."""
    kernel = np.random.default_rng(0).integers(-127, 127, (4, 3, 3, 3))
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], "quantize"),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], "dequantize"),
        node("DequantizeLinear", ["w", "s", "z"], ["k"], "kernel"),
        node("Conv", ["d", "k"], ["a"], "one", pads=[1, 1, 1, 1]),
        node("Conv", ["d", "k"], ["b"], "two", strides=[2, 2]),
    ]
    weights = [constant("s", 0.05, np.float32), constant("z", 0, np.int8)]
    weights.append(constant("w", kernel, np.int8))
    return model(nodes, [value("x", (1, 3, 8, 8))], [value("a"), value("b")], weights)


def test_quantised_kernels_stay_quantised_and_go_with_their_layers(tmp_path: Path) -> None:
    built = cnn.read(save(quantised(), tmp_path))
    network = built.network
    assert list(network.layer) == ["quantize", "dequantize", "one", "two"]
    assert "w" in network.layer["one"].weights
    assert "w" in network.layer["two"].weights
    assert network.weights["w"].dtype == "int8"
    assert network.tensors["q"].dtype == "int8"
    whole_model_agrees(built, tmp_path)
    alone = built.cut(["two"], ["d"], ["b"], tmp_path)
    onnx.checker.check_model(str(alone.graph), full_check=True)


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 13, 15, 17, 18, 19, 20, 21, 22])
def test_operator_sets_from_7_on(tmp_path: Path, opset: int) -> None:
    built = cnn.read(
        save(convolution((1, 3, 8, 8), node("Relu", ["y"], ["z"]), opset=opset), tmp_path)
    )
    assert [layer.operator for layer in built.network.layers] == ["Conv", "Relu"]
    whole_model_agrees(built, tmp_path)


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    proto = convolution((1, 3, 8, 8), node("Twice", ["y"], ["z"], domain="my.functions"))
    proto.opset_import.append(onnx.helper.make_opsetid("my.functions", 1))
    body = [node("Add", ["a", "a"], ["b"])]
    opsets = [onnx.helper.make_opsetid("", 17)]
    proto.functions.append(
        onnx.helper.make_function("my.functions", "Twice", ["a"], ["b"], body, opsets)
    )
    built = cnn.read(save(proto, tmp_path))
    assert [layer.operator for layer in built.network.layers] == ["Conv", "Add"]
    whole_model_agrees(built, tmp_path)
