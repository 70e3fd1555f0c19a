"""Models that round each of their tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from cnn.reading.half_precision import write_rounded
from tests.cnn.models import constant, model, node, run, save, value

HALF = onnx.TensorProto.FLOAT16


def test_half_precision_is_rounded_after_every_operator(tmp_path: Path) -> None:
    """100 + 0.01 is 100 in half precision; the engine, left alone, keeps it until the end."""
    nodes = [node("Add", ["x", "b"], ["t"]), node("Sub", ["t", "b"], ["y"])]
    inputs, outputs = [value("x", (2,), HALF)], [value("y", (2,), HALF)]
    proto = model(nodes, inputs, outputs, [constant("b", 100, np.float16)])
    frame = {"x": np.full(2, 0.01, np.float16)}
    assert run(write_rounded(save(proto, tmp_path), tmp_path / "rounded"), frame)[0].tolist() == [
        0,
        0,
    ]


def test_single_precision_computes_the_same_with_its_weights_outside(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    nodes = [node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    proto = model(nodes, [value("x", (1, 40))], [value("y")], [constant("w", weights, np.float32)])
    proto.graph.output[0].CopyFrom(value("y", (1, 40)))
    path = tmp_path / "outside.onnx"
    onnx.save(proto, str(path), save_as_external_data=True, location="weights", size_threshold=0)
    frame = {"x": np.ones((1, 40), np.float32)}
    rounded = write_rounded(path, tmp_path / "rounded")
    np.testing.assert_array_equal(run(rounded, frame)[0], run(path, frame)[0])
