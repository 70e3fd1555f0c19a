"""Simplification changes how a network is written, never what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings

import cnn
from tests.agreement.comparison import LIMIT, random_frame, relative_error
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
@settings(max_examples=25)
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
def test_a_constant_after_a_kernel_is_not_taken_for_one_per_channel(
    kernel: str, operator: str, shape: tuple[int, ...], tmp_path: Path
) -> None:
    """Channels, rows and columns are four each."""
    nodes = [node(kernel, ["x", "w"], ["y"], "c"), node(operator, ["y", "f"], ["z"])]
    weights = [weight("w", 4, 4, 1, 1), weight("f", *shape, seed=1)]
    proto = model(nodes, [value("x", (1, 4, 4, 4))], [value("z")], weights)
    whole_model_agrees(cnn.read(save(proto, tmp_path)), tmp_path)


def test_nor_is_one_after_a_matrix_that_is_reshaped(tmp_path: Path) -> None:
    nodes = [
        node("Gemm", ["x", "w"], ["y"], transB=1),
        node("Reshape", ["y", "s"], ["r"]),
        node("Mul", ["r", "f"], ["z"]),
    ]
    weights = [weight("w", 4, 5), constant("s", [4, 2, 2, 1]), weight("f", 4, seed=1)]
    proto = model(nodes, [value("x", (4, 5))], [value("z")], weights)
    whole_model_agrees(cnn.read(save(proto, tmp_path)), tmp_path)


def test_a_large_kernel_after_a_batch_norm_is_fused_all_the_same(tmp_path: Path) -> None:
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
    assert list(network.layer) == ["quantize", "one", "two"]
    assert "w" in network.layer["one"].weights
    assert "w" in network.layer["two"].weights
    assert network.weights["w"].dtype == "int8"
    assert network.tensors["q"].dtype == "int8"
    whole_model_agrees(built, tmp_path)
    alone = built.cut(["two"], ["q"], ["b"], tmp_path)
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


def operators(built: cnn.Model) -> list[str]:
    return [layer.operator for layer in built.network.layers]


def padded_by_arithmetic(pads: list[int], *more: onnx.NodeProto) -> onnx.ModelProto:
    """A `Pad` as PyTorch writes `F.pad` when sizes are open: pads stand last axis first, each begin
    before its end, and are filled up with zeros, paired, reversed, transposed, flattened and cast.
    The first of them is computed from the shape of a tensor inside."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["shape"]),
        node("Gather", ["shape", "last"], ["columns"], axis=0),
        node("Sub", ["columns", "columns"], ["nothing"]),
        node("Add", ["nothing", "first"], ["computed"]),
        node("Unsqueeze", ["computed", "zero"], ["front"]),
        node("Concat", ["front", "rest"], ["given"], axis=0),
        node("ConstantOfShape", ["missing"], ["zeros"], value=constant("", [0])),
        node("Concat", ["given", "zeros"], ["all"], axis=0),
        node("Reshape", ["all", "pairs"], ["paired"]),
        node("Slice", ["paired", "minus_one", "lowest", "zero", "minus_one"], ["reversed"]),
        node("Transpose", ["reversed"], ["columnwise"], perm=[1, 0]),
        node("Reshape", ["columnwise", "minus_one"], ["flat"]),
        node("Cast", ["flat"], ["pads"], to=onnx.TensorProto.INT64),
        node("Pad", ["r", "pads"], ["y"], "pad", mode="constant"),
        *more,
    ]
    constants = {
        "last": -1, "first": pads[0], "rest": pads[1:], "missing": [8 - len(pads)], "zero": [0],
        "pairs": [-1, 2], "minus_one": [-1], "lowest": [-(2**63) + 1],
    }  # fmt: skip
    initial = [constant(name, array) for name, array in constants.items()]
    inputs = [value("x", (1, 3, 6, 7))]
    return model(nodes, inputs, [value(nodes[-1].output[0])], [*initial, weight("w", 4, 3, 3, 3)])


@pytest.mark.parametrize("pads", [[1, 2, 3, 4], [0, 1, 0, 1], [2, 0, 1, 0], [0, 1, 0, 0, 0, 2]])
def test_pads_that_are_computed_begin_and_end_where_they_should(
    pads: list[int], tmp_path: Path
) -> None:
    built = cnn.read(save(padded_by_arithmetic(pads), tmp_path))
    assert operators(built) == ["Relu", "Pad"]
    whole_model_agrees(built, tmp_path)


def test_computed_zeros_in_front_of_a_convolution_are_its_own(tmp_path: Path) -> None:
    convolution = node("Conv", ["y", "w"], ["z"], "c", strides=[2, 2], pads=[1, 0, 1, 0])
    built = cnn.read(save(padded_by_arithmetic([0, 1, 2, 3], convolution), tmp_path))
    assert operators(built) == ["Relu", "Conv"]
    whole_model_agrees(built, tmp_path)


@pytest.mark.parametrize(
    ("attributes", "constants"),
    [
        ({"mode": "reflect"}, {}),
        ({}, {"value": (np.float32, 0.5)}),
        ({}, {"pads": (np.int64, [0, 1, 0, 0, 0, 0, 0, 0])}),
        ({}, {"pads": (np.int64, [0, 0, -1, 1, 0, 0, 1, 1])}),
    ],
    ids=["reflected", "of ones", "of channels", "negative"],
)
def test_pads_other_than_zeros_around_an_image_stay(
    attributes: dict[str, str], constants: dict[str, tuple[type, object]], tmp_path: Path
) -> None:
    given = {"pads": (np.int64, [0, 0, 1, 1, 0, 0, 1, 1]), "value": (np.float32, 0.0)} | constants
    nodes = [
        node("Pad", ["x", "pads", "value"], ["y"], **attributes),
        node("Conv", ["y", "w"], ["z"]),
    ]
    initial = [constant(name, array, dtype) for name, (dtype, array) in given.items()]
    channels = 4 if given["pads"][1][1] else 3
    initial.append(weight("w", 4, channels, 3, 3))
    proto = model(nodes, [value("x", (1, 3, 6, 7))], [value("z")], initial)
    built = cnn.read(save(proto, tmp_path))
    assert operators(built) == ["Pad", "Conv"]
    whole_model_agrees(built, tmp_path)


def test_pads_of_named_axes_are_fused_as_those_axes(tmp_path: Path) -> None:
    nodes = [
        node("Pad", ["x", "pads", "", "axes"], ["y"]),
        node("Conv", ["y", "w"], ["z"]),
        node("Relu", ["y"], ["r"]),
    ]
    initial = [constant("pads", [2, 1]), constant("axes", [-1]), weight("w", 4, 3, 3, 3)]
    outputs = [value("z"), value("r")]
    proto = model(nodes, [value("x", (1, 3, 6, 7))], outputs, initial, opset=18)
    built = cnn.read(save(proto, tmp_path))
    assert operators(built) == ["Pad", "Conv", "Relu"]
    assert built.network.layers[1].inputs == ("x",)
    whole_model_agrees(built, tmp_path)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kernel", "shape", "group"),
    [
        ("Conv", (6, 4, 3, 3), 1), ("Conv", (6, 2, 3, 3), 2), ("Conv", (6, 4, 3), 1),
        ("ConvTranspose", (4, 6, 3, 3), 1), ("ConvTranspose", (4, 3, 2, 2), 2),
    ],
)  # fmt: skip
def test_a_batch_norm_becomes_a_part_of_the_convolution_before_it(
    kernel: str, shape: tuple[int, ...], group: int, bias: bool, tmp_path: Path
) -> None:
    channels = shape[0] if kernel == "Conv" else shape[1] * group
    weights = [weight("w", *shape), *(weight(name, channels) for name in ("s", "b", "m"))]
    weights += [constant("v", np.linspace(0.1, 3, channels), np.float32), weight("c", channels)]
    inputs = ["x", "w", "c"] if bias else ["x", "w"]
    nodes = [
        node(kernel, inputs, ["y"], "kernel", group=group),
        node("BatchNormalization", ["y", "s", "b", "m", "v"], ["z"], epsilon=0.01),
    ]
    size = (1, 4, *(7,) * (len(shape) - 2))
    built = cnn.read(save(model(nodes, [value("x", size)], [value("z")], weights), tmp_path))
    assert operators(built) == [kernel]
    assert built.network.layers[0].name == "kernel"
    whole_model_agrees(built, tmp_path)


@pytest.mark.parametrize(("outputs", "left"), [(["z"], 1), (["z", "y"], 2)])
def test_a_convolution_that_others_read_keeps_its_batch_norm_apart(
    outputs: list[str], left: int, tmp_path: Path
) -> None:
    nodes = [
        node("Conv", ["x", "w"], ["y"]),
        node("BatchNormalization", ["y", "s", "s", "s", "v"], ["z"]),
    ]
    weights = [weight("w", 4, 3, 3, 3), weight("s", 4), constant("v", np.ones(4), np.float32)]
    named = [value(name) for name in outputs]
    built = cnn.read(save(model(nodes, [value("x", (1, 3, 6, 7))], named, weights), tmp_path))
    assert len(built.network.layers) == left
    whole_model_agrees(built, tmp_path)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 5), (2, 1), ()])
def test_a_product_and_its_bias_are_one_layer(shape: tuple[int, ...], tmp_path: Path) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Add", ["b", "y"], ["z"])]
    weights = [weight("w", 3, 5), weight("b", *shape)]
    built = cnn.read(save(model(nodes, [value("x", (2, 3))], [value("z")], weights), tmp_path))
    assert operators(built) == ["Gemm"]
    whole_model_agrees(built, tmp_path)


@pytest.mark.parametrize("shape", [(4, 1, 5), (3, 2, 5), (1, 2, 5)])
def test_a_bias_that_makes_the_product_larger_stays_an_addition(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("Add", ["y", "b"], ["z"])]
    weights = [weight("w", 3, 5), weight("b", *shape)]
    built = cnn.read(save(model(nodes, [value("x", (2, 3))], [value("z")], weights), tmp_path))
    assert operators(built) == ["MatMul", "Add"]
    whole_model_agrees(built, tmp_path)


def test_consecutive_views_are_one(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]),
        node("Transpose", ["a"], ["b"], perm=[0, 3, 1, 2]),
        node("Relu", ["b"], ["c"]),
        node("GlobalAveragePool", ["c"], ["d"]),
        node("Transpose", ["d"], ["e"], perm=[0, 2, 3, 1]),
        node("Squeeze", ["e", "axes"], ["f"]),
        node("Unsqueeze", ["f", "last"], ["g"]),
        node("Flatten", ["g"], ["h"]),
    ]
    constants = [constant("axes", [1, 2]), constant("last", [-1])]
    built = cnn.read(
        save(model(nodes, [value("x", (1, 3, 6, 7))], [value("h")], constants), tmp_path)
    )
    assert operators(built) == ["Relu", "GlobalAveragePool", "Reshape"]
    whole_model_agrees(built, tmp_path)


def test_a_slice_that_reverses_an_axis_is_not_an_identity(tmp_path: Path) -> None:
    nodes = [node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])]
    arrays = {"starts": [-1], "ends": [-9], "axes": [2], "steps": [-1]}
    constants = [constant(name, array) for name, array in arrays.items()]
    built = cnn.read(
        save(model(nodes, [value("x", (1, 3, 6, 7))], [value("y")], constants), tmp_path)
    )
    assert operators(built) == ["Slice"]
    whole_model_agrees(built, tmp_path)


def test_a_mask_that_nobody_reads_keeps_no_dropout(tmp_path: Path) -> None:
    nodes = [node("Dropout", ["y"], ["d", "mask"]), node("Relu", ["d"], ["z"])]
    built = cnn.read(save(convolution((1, 3, 8, 8), *nodes), tmp_path))
    assert operators(built) == ["Conv", "Relu"]


def test_outputs_keep_their_names_where_operators_in_front_of_them_go(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Identity", ["r"], ["first"]),
        node("Identity", ["r"], ["second"]),
        node("Neg", ["r"], ["third"]),
        node("Identity", ["x"], ["fourth"]),
    ]
    outputs = [value(name) for name in ("first", "second", "third", "fourth")]
    built = cnn.read(save(model(nodes, [value("x", (1, 3, 6, 7))], outputs), tmp_path))
    assert built.network.outputs == ("first", "second", "third", "fourth")
    assert operators(built) == ["Relu", "Identity", "Neg", "Identity"]
    whole_model_agrees(built, tmp_path)


def test_operators_may_stand_in_any_order(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["a", "b"], ["z"], "add"),
        node("Relu", ["x"], ["a"], "relu"),
        node("Reshape", ["n", "s"], ["b"], "view"),
        node("Shape", ["a"], ["s"], "shape"),
        node("Neg", ["a"], ["n"], "neg"),
    ]
    built = cnn.read(save(model(nodes, [value("x", (1, 3, 6, 7))], [value("z")]), tmp_path))
    assert [layer.name for layer in built.network.layers] == ["relu", "neg", "add"]
    whole_model_agrees(built, tmp_path)


def test_what_is_computed_twice_is_computed_once(tmp_path: Path) -> None:
    nodes = [
        node("LeakyRelu", ["x"], ["a"], "a", alpha=0.1),
        node("LeakyRelu", ["x"], ["b"], "b", alpha=0.1),
        node("LeakyRelu", ["x"], ["c"], "c", alpha=0.2),
        node("Sum", ["a", "b", "c"], ["z"]),
    ]
    built = cnn.read(save(model(nodes, [value("x", (1, 3, 6, 7))], [value("z")]), tmp_path))
    assert [layer.name for layer in built.network.layers] == ["a", "c", "z"]
    whole_model_agrees(built, tmp_path)


def test_what_is_large_only_once_it_is_computed_stays_computed(tmp_path: Path) -> None:
    nodes = [
        node("ConstantOfShape", ["s"], ["zeros"]),
        node("Add", ["x", "zeros"], ["z"]),
    ]
    size = (1, 64, 64, 64)
    built = cnn.read(
        save(model(nodes, [value("x", size)], [value("z")], [constant("s", size)]), tmp_path)
    )
    assert list(built.network.weights) == ["s"]
    whole_model_agrees(built, tmp_path)


def test_an_output_that_is_left_out_has_no_type(tmp_path: Path) -> None:
    """As exporters leave out a mask, all but the last state, and inputs between others."""
    nodes = [
        node("Dropout", ["x"], ["d", ""]),
        node("GRU", ["d", "w", "r", "", "", "h"], ["", "y"], "gru", hidden_size=3),
        node("Relu", ["y"], ["z"]),
    ]
    proto = model(
        nodes,
        [value("x", (5, 1, 4))],
        [value("z", (1, 1, 3))],
        [weight("w", 1, 9, 4), weight("r", 1, 9, 3), weight("h", 1, 1, 3)],
    )
    path = save(proto, tmp_path)
    found = cnn.read(path)
    assert "gru" not in found.band_layers()
    frame = {"x": np.random.default_rng(0).standard_normal((5, 1, 4), np.float32)}
    subnet = found.cut(found.network.layer, ["x"], ["z"], tmp_path)
    np.testing.assert_allclose(run(subnet.graph, frame)[0], run(path, frame)[0], rtol=1e-5)
