"""Models run without the optimisers of ONNX Runtime that are faulty for them.

silero-vad is a network with such a fault (`python -m benchmarks.zoo silero-vad --launch auto`).
Those of quantised networks are tested in `test_onnx_quantised.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nodes.executors.onnx.faulty_optimizers import FAULTY_FOR_ALL, faulty_optimizers
from tests.cnn.models import constant, convolution, graph, model, node, save, value
from tests.nodes.executors.whole import run_whole


def with_branches(directory: Path) -> Path:
    branches = {
        f"{name}_branch": graph([node(operator, ["x"], ["p"])], name, [], [value("p")])
        for name, operator in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [node("If", ["yes"], ["y"], **branches)]
    proto = model(nodes, [value("x", (1, 2))], [value("y")], [constant("yes", False, bool)])
    return save(proto, directory, "branches.onnx")


def test_folding_is_off_where_there_are_bodies(tmp_path: Path) -> None:
    found = faulty_optimizers(with_branches(tmp_path))
    assert found == [*FAULTY_FOR_ALL, "ConstantFolding"]


@pytest.mark.parametrize("model", [convolution().SerializeToString(), b"", b"\x3a\xff\xff", b"x"])
def test_and_on_elsewhere(model: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert faulty_optimizers(path) == FAULTY_FOR_ALL
    path.write_bytes(model)
    assert faulty_optimizers(path) == FAULTY_FOR_ALL


def test_the_whole_model_runs_with_its_branches(tmp_path: Path) -> None:
    given = {"x": np.array([[-1, 2]], np.float32)}
    found = run_whole(with_branches(tmp_path), given, ("y",), tmp_path)
    np.testing.assert_array_equal(found["y"], [[1, -2]])


def quantised(operator_set: int) -> bytes:
    """A convolution between quantisers, with a bias in floating point."""
    weight = np.ones((2, 3, 1, 1), np.int8)
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "scale", "zero"], ["xd"]),
        node("DequantizeLinear", ["w", "scale", "zero"], ["wd"]),
        node("Conv", ["xd", "wd", "bias"], ["c"]),
        node("QuantizeLinear", ["c", "scale", "zero"], ["cq"]),
        node("DequantizeLinear", ["cq", "scale", "zero"], ["y"]),
    ]
    constants = [
        constant("scale", 0.1, np.float32),
        constant("zero", 0, np.int8),
        constant("w", weight, np.int8),
        constant("bias", [0.5, 1.5], np.float32),
    ]
    proto = model(nodes, [value("x", (1, 3, 4, 4))], [value("y")], constants)
    del proto.opset_import[:]
    proto.opset_import.add(version=operator_set)
    return proto.SerializeToString()


@pytest.mark.parametrize("operator_set", [10, 11])
def test_quantised_models_load_whether_their_operator_set_has_round_or_not(
    operator_set: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(quantised(operator_set))
    found = run_whole(path, {"x": np.zeros((1, 3, 4, 4), np.float32)}, ("y",), tmp_path)
    np.testing.assert_allclose(found["y"][0, :, 0, 0], [0.5, 1.5], rtol=1e-6)
