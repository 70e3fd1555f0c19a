"""What a process that loads and runs a subnet reaches is what the plan says, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper, save

from cnn import read
from partition.devices import Device
from partition.plan import MemoryPrediction
from partition.planner import make_plan
from partition.pricing.memory_budget import CODE_BYTES, PREPARING_BYTES, START_UP_BYTES
from tests.partition.loaded_memory import peak_bytes

pytestmark = pytest.mark.slow

Weights = dict[str, np.ndarray]


def predicted_and_measured(
    folder: Path, nodes: Sequence[NodeProto], weights: Weights, given: tuple[int, ...]
) -> tuple[MemoryPrediction, int]:
    """Of one device that computes all of a network from `x` to `y`; measured is the peak of its
    agent, with what predictions allow for code."""
    graph = helper.make_graph(
        list(nodes), "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )  # fmt: skip
    file = folder / "net.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    model = read(str(file))
    network = model.network
    layers = [layer.name for layer in network.layers]
    plan = make_plan(
        network, "", (Device("d"),), dict.fromkeys(layers, "d"), strategy="any", explanation=""
    )
    subnet = model.cut(layers, network.inputs, network.outputs, folder / "subnet")
    peak = peak_bytes([subnet.graph], folder / "cache", rounds=4)
    return plan.memory["d"], peak + CODE_BYTES


def alone_bytes(predicted: MemoryPrediction) -> int:
    """What an agent reaches while it packs matrices: what prepares subnets has ended by then."""
    assert predicted.total_bytes == START_UP_BYTES + predicted.packing_bytes
    return predicted.total_bytes - PREPARING_BYTES + CODE_BYTES


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32) / shape[-1]


def test_the_packed_weights_of_an_lstm_take_the_originals_place(tmp_path: Path) -> None:
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=1024)]
    weights = {"w": random(1, 4096, 2048), "r": random(1, 4096, 1024)}
    predicted, measured = predicted_and_measured(tmp_path, nodes, weights, (16, 1, 2048))
    assert predicted.weights_bytes == 4 * 4096 * 3072
    assert measured == pytest.approx(alone_bytes(predicted), rel=0.1)


def test_a_matrix_larger_than_all_else_is_there_twice_while_it_is_packed(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    predicted, measured = predicted_and_measured(
        tmp_path, nodes, {"w": random(1024, 8192)}, (1, 20, 1024)
    )
    assert predicted.total_bytes == START_UP_BYTES + 2 * 4 * 1024 * 8192
    assert measured == pytest.approx(alone_bytes(predicted), rel=0.1)


def test_a_matrix_for_single_rows_is_there_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    predicted, measured = predicted_and_measured(
        tmp_path, nodes, {"w": random(1024, 8192)}, (1, 1024)
    )
    assert predicted.packing_bytes == 0
    assert measured == pytest.approx(predicted.total_bytes, rel=0.1)


def test_a_matrix_for_single_rows_is_there_twice_beside_what_is_packed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Reshape", ["product", "as_image"], ["image"]),
        helper.make_node("ConvTranspose", ["image", "k"], ["y"]),
    ]
    weights = {
        "w": random(1024, 8192),
        "k": random(128, 64, 3, 3),
        "as_image": np.array((1, 128, 8, 8)),
    }
    predicted, measured = predicted_and_measured(tmp_path, nodes, weights, (1, 1024))
    assert predicted.packing_bytes == 2 * 4 * 1024 * 8192
    assert measured == pytest.approx(alone_bytes(predicted), rel=0.1)


def test_half_precision_is_computed_from_float32(tmp_path: Path) -> None:
    kernel = random(512, 512, 5, 5).astype(np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Conv", ["half", "w"], ["made"], pads=[2, 2, 2, 2]),
        helper.make_node("Cast", ["made"], ["y"], to=TensorProto.FLOAT),
    ]
    predicted, measured = predicted_and_measured(tmp_path, nodes, {"w": kernel}, (1, 512, 8, 8))
    assert predicted.weights_bytes == 2 * kernel.nbytes
    assert measured == pytest.approx(predicted.total_bytes, rel=0.1)


def test_tensors_of_many_sizes_are_not_kept_between_two_uses_of_a_size(tmp_path: Path) -> None:
    """ONNX Runtime plans which tensors take the place of earlier ones of their size, and keeps
    these places in between."""
    rows, columns = 1000, 2000
    nodes, name = [], "x"
    sizes = [*range(1, 9), *range(1, 9)]
    for number, more in enumerate(sizes):
        nodes += [
            helper.make_node("Relu", [name], [f"r{number}"]),
            helper.make_node("Pad", [f"r{number}", f"pads{more}"], [f"p{number}"]),
            helper.make_node("Sqrt", [f"p{number}"], [f"s{number}"]),
            helper.make_node("Slice", [f"s{number}", "first", "end"], [f"c{number}"]),
        ]
        name = f"c{number}"
    nodes.append(helper.make_node("ReduceSum", [name], ["y"], keepdims=0))
    weights = {f"pads{n}": np.array([0, 0, n, 0], np.int64) for n in sizes}
    weights |= {"first": np.array([0, 0]), "end": np.array([rows, columns])}
    predicted, measured = predicted_and_measured(tmp_path, nodes, weights, (rows, columns))
    assert measured == pytest.approx(predicted.total_bytes, rel=0.1)
