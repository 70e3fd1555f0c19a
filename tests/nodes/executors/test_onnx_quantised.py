"""Quantised networks compute with the agents' level of fusion what they compute with none.

Each network was changed by an optimiser of ONNX Runtime 1.31, or could not be loaded after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from nodes.executors import replay
from nodes.executors.onnx.faulty_optimizers import (
    FAULTY_FOR_ALL,
    faulty_optimizers,
    faulty_optimizers_of,
)
from tests.cnn.models import node, value

Arrays = Mapping[str, object]

WEIGHTS = (np.random.default_rng(0).standard_normal((6, 4, 3, 3)) / 5).astype(np.float32)
BIASES = np.linspace(-1, 1, 6, dtype=np.float32)


def quantised(given: str, made: str, scale: str, zero: str = "zero") -> list[NodeProto]:
    """A pair of quantisers from one tensor to another."""
    between = f"{made} quantised"
    return [
        node("QuantizeLinear", [given, scale, zero], [between]),
        node("DequantizeLinear", [between, scale, zero], [made]),
    ]


def network(
    nodes: Sequence[NodeProto],
    constants: Arrays,
    shape: tuple[int, ...] = (1, 4, 8, 8),
    outputs: Sequence[str] = ("y",),
    opset: int = 13,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "net",
        [value("x", shape, kind)],
        [value(name, kind=kind) for name in outputs],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9 if opset < 21 else 10)


def convolution(weights: np.ndarray, scales: np.ndarray, biases: np.ndarray, **scale: object):
    """A convolution of 8-bit weights between quantisers, with biases that are not quantised."""
    rounded = np.rint(weights / scales[:, None, None, None]).astype(np.int8)
    nodes = [
        *quantised("x", "d", "x scale"),
        node("DequantizeLinear", ["q", "scales", "zeros"], ["w"], axis=0),
        node("Conv", ["d", "w", "b"], ["c"]),
        *quantised("c", "y", "y scale"),
    ]
    constants = {"zero": np.uint8(128), "zeros": np.zeros(6, np.int8), "q": rounded}
    constants |= {"scales": scales, "b": biases}
    return network(nodes, constants | {name.replace("_", " "): x for name, x in scale.items()})


def scales_of(weights: np.ndarray) -> np.ndarray:
    return np.abs(weights).max((1, 2, 3)) / np.float32(127)


def plain_weights():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("Conv", ["d", "w"], ["c"]),
        *quantised("c", "y", "y scale"),
    ]
    weights = WEIGHTS.copy()
    weights[:, 0] *= 100
    constants = {"zero": np.uint8(128), "w": weights}
    return network(nodes, {**constants, "x scale": np.float32(0.05), "y scale": np.float32(0.05)})


def plain_weights_behind_a_reshape():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("Reshape", ["d", "shape"], ["r"]),
        node("Conv", ["r", "w"], ["c"]),
        *quantised("c", "y", "y scale"),
    ]
    constants = {"zero": np.uint8(128), "w": WEIGHTS, "shape": np.array((1, 4, 4, 16))}
    return network(nodes, {**constants, "x scale": np.float32(0.05), "y scale": np.float32(0.01)})


def plain_weights_of_a_product():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("MatMul", ["d", "w"], ["m"]),
        node("Add", ["m", "b"], ["c"]),
        *quantised("c", "y", "y scale"),
    ]
    weights = np.random.default_rng(1).standard_normal((16, 6)).astype(np.float32) / 5
    weights[:, 0] /= 100
    constants = {"zero": np.uint8(128), "w": weights, "b": BIASES}
    scales = {"x scale": np.float32(0.05), "y scale": np.float32(0.01)}
    return network(nodes, constants | scales, (2, 4, 16))


def plain_weights_in_a_body():
    inside = [
        *quantised("x", "d", "x scale"),
        node("Conv", ["d", "w"], ["c"]),
        *quantised("c", "t", "y scale"),
    ]
    bodies = {
        "then_branch": helper.make_graph(
            inside, "then", [], [value("t")], [numpy_helper.from_array(WEIGHTS, "w")]
        ),
        "else_branch": helper.make_graph(
            [node("Conv", ["x", "v"], ["e"])], "else", [], [value("e")],
            [numpy_helper.from_array(WEIGHTS, "v")],
        ),
    }  # fmt: skip
    nodes = [
        node("ReduceMax", ["x"], ["top"], keepdims=0),
        node("Greater", ["top", "x scale"], ["is"]),
        node("If", ["is"], ["y"], **bodies),
    ]
    scales = {"x scale": np.float32(0.05), "y scale": np.float32(0.01)}
    return network(nodes, {"zero": np.uint8(128), **scales})


def a_channel_of_zeros():
    """Its scale is 1, as ONNX Runtime's quantiser writes it."""
    weights = WEIGHTS / 100
    weights[2] = 0
    scales = scales_of(weights)
    scales[2] = 1
    biases = np.full(6, 0.45, np.float32)
    return convolution(weights, scales, biases, x_scale=np.float32(1), y_scale=np.float32(0.006))


def a_channel_of_zeros_in_a_product():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("DequantizeLinear", ["q", "scales", "zeros"], ["w"], axis=1),
        node("MatMul", ["d", "w"], ["m"]),
        node("Add", ["b", "m"], ["c"]),
        *quantised("c", "y", "y scale"),
    ]
    weights = np.random.default_rng(1).standard_normal((16, 6)).astype(np.float32) / 500
    weights[:, 2] = 0
    scales = np.abs(weights).max(0) / np.float32(127)
    scales[2] = 1
    constants = {"zero": np.uint8(128), "zeros": np.zeros(6, np.int8), "scales": scales}
    constants |= {"q": np.rint(weights / scales).astype(np.int8), "b": np.full(6, 0.45, np.float32)}
    constants |= {"x scale": np.float32(1), "y scale": np.float32(0.006)}
    return network(nodes, constants, (2, 4, 16))


def a_channel_of_tiny_weights():
    weights = WEIGHTS.copy()
    weights[2] /= 1e9
    biases = np.ones(6, np.float32)
    return convolution(
        weights, scales_of(weights), biases, x_scale=np.float32(0.02), y_scale=np.float32(0.03)
    )


def half_precision():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("DequantizeLinear", ["q", "scale", "weight zero"], ["w"]),
        node("Conv", ["d", "w", "b"], ["c"]),
        *quantised("c", "y", "y scale"),
    ]
    rounded = np.random.default_rng(2).integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
    constants = {"zero": np.uint8(128), "weight zero": np.int8(0), "q": rounded}
    scales = {"x scale": 0.01, "scale": 0.001, "y scale": 0.03}
    constants |= {name: np.float16(x) for name, x in scales.items()}
    return network(
        nodes, {**constants, "b": np.ones(6, np.float16)}, opset=19, kind=TensorProto.FLOAT16
    )


def half_precision_around_a_concatenation():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("Concat", ["d", "d"], ["c"], axis=1),
        *quantised("c", "y", "y scale"),
    ]
    constants = {"zero": np.uint8(128), "x scale": np.float16(0.05), "y scale": np.float16(0.07)}
    return network(nodes, constants, opset=19, kind=TensorProto.FLOAT16)


def an_int8_pooling_of_operator_set_21():
    nodes = [
        *quantised("x", "d", "x scale"),
        node("MaxPool", ["d"], ["p"], kernel_shape=[2, 2]),
        node("Sigmoid", ["p"], ["y"]),
    ]
    return network(nodes, {"zero": np.int8(0), "x scale": np.float32(0.02)}, opset=21)


def an_output_that_is_transposed_and_quantised():
    nodes = [
        node("Neg", ["x"], ["t"]),
        node("Transpose", ["t"], ["u"], perm=[0, 2, 3, 1]),
        *quantised("u", "y", "y scale"),
    ]
    constants = {"zero": np.uint8(128), "y scale": np.float32(0.01)}
    return network(nodes, constants, outputs=("y", "t"))


NETWORKS = (
    plain_weights,
    plain_weights_behind_a_reshape,
    plain_weights_of_a_product,
    plain_weights_in_a_body,
    a_channel_of_zeros,
    a_channel_of_zeros_in_a_product,
    a_channel_of_tiny_weights,
    half_precision,
    half_precision_around_a_concatenation,
    an_int8_pooling_of_operator_set_21,
    an_output_that_is_transposed_and_quantised,
)


def outputs_at(
    level: str, model: Path, frame: np.ndarray, names: Sequence[str]
) -> list[np.ndarray]:
    folder = model.parent / level
    (folder / "0").mkdir(parents=True)
    np.save(folder / "0" / "x.npy", frame)
    step = {
        "graph": str(model),
        "level": level,
        "inputs": {"x": ["x.npy", []]},
        "outputs": {name: f"{name}.npy" for name in names},
    }
    replay.run({"folder": str(folder), "frames": ["0"], "steps": [step]})
    return [np.load(folder / "0" / f"{name}.npy") for name in names]


@pytest.mark.parametrize("make", NETWORKS)
def test_fusion_changes_nothing(make, tmp_path: Path) -> None:
    proto = make()
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    given = proto.graph.input[0].type.tensor_type
    shape = [size.dim_value for size in given.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(given.elem_type)
    frame = np.random.default_rng(3).standard_normal(shape).astype(dtype)
    names = [output.name for output in proto.graph.output]
    wanted, found = (outputs_at(level, path, frame, names) for level in ("none", "all"))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def fully_quantised(opset: int = 13) -> onnx.ModelProto:
    scales = {"x_scale": np.float32(0.05), "y_scale": np.float32(0.05)}
    found = convolution(WEIGHTS, scales_of(WEIGHTS), BIASES, **scales)
    found.opset_import[0].version = opset
    return found


@pytest.mark.parametrize("opset", [13, 21])
def test_a_fully_quantised_network_keeps_its_fusions(opset: int) -> None:
    """With biases in floating point, ONNX Runtime fuses it only after it has rounded them."""
    assert faulty_optimizers_of(fully_quantised(opset).SerializeToString()) == FAULTY_FOR_ALL


@pytest.mark.parametrize(("largest", "is_faulty"), [(1.0, True), (0.003, False)])
def test_scales_are_read_where_they_lie(tmp_path: Path, largest: float, is_faulty: bool) -> None:
    """The launcher writes constants of 1024 bytes and more into a separate file."""
    proto = fully_quantised()
    scales = np.full(6, 0.003, np.float32)
    scales[2] = largest
    (index,) = (i for i, x in enumerate(proto.graph.initializer) if x.name == "scales")
    proto.graph.initializer[index].CopyFrom(numpy_helper.from_array(scales, "scales"))
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    found = faulty_optimizers(path)
    assert ("WeightBiasQuantization" in found) is is_faulty
    assert "WeightBiasQuantization" in faulty_optimizers_of(path.read_bytes())


def test_no_file_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    proto = fully_quantised()
    (tmp_path / "inside").mkdir()
    path = tmp_path / "inside" / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "inside" / "weights").rename(tmp_path / "weights")
    proto = onnx.load(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../weights"
    path.write_bytes(proto.SerializeToString())
    assert "WeightBiasQuantization" in faulty_optimizers(path)  # as for scales that are unknown
