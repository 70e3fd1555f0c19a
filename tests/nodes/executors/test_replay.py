"""Steps that are run again: levels of fusion, and tensors inside a graph as outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from csdf_edge.testing import executor_models as models
from nodes.executors import replay
from tests.cnn.models import model, node, save, value
from tests.nodes.executors.whole import run_whole

FLOAT = 1


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """x → Neg → inner → Exp → y"""
    proto = models.model(
        "inner",
        [
            models.helper.make_node("Neg", ["x"], ["inner"]),
            models.helper.make_node("Exp", ["inner"], ["y"]),
        ],
        [("x", FLOAT, [4])],
        [("y", FLOAT, [4])],
    )
    return Path(models.save(proto, tmp_path / "model"))


def test_tensors_inside_a_graph_become_outputs_if_there_are_such(graph: Path) -> None:
    model = replay.with_outputs(graph.read_bytes(), ["y", "inner", "none"])
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["y", "inner"]


@pytest.mark.parametrize("level", ["all", "none", "agent"])
def test_a_step_feeds_a_part_and_the_next_step_reads_what_it_made(
    tmp_path: Path, graph: Path, level: str
) -> None:
    folder = tmp_path / "tape"
    (folder / "7" / "in").mkdir(parents=True)
    x = np.arange(8, dtype=np.float32) / 8
    np.save(folder / "7" / "in" / "0.npy", x)
    steps = [
        {"inputs": {"x": ["in/0.npy", [[0, 2, 6]]]}, "outputs": {"y": "a/1.npy"}},
        {"inputs": {"x": ["a/1.npy", []]}, "outputs": {"y": "b/1.npy"}},
    ]
    common = {"graph": str(graph), "level": level}
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps({"folder": str(folder), "frames": ["7"], "steps": [s | common for s in steps]})
    )
    assert replay.main([str(job)]) == 0
    np.testing.assert_allclose(
        np.load(folder / "7" / "b" / "1.npy"), np.exp(-np.exp(-x[2:6])), rtol=1e-6
    )


def test_a_model_that_cannot_be_used_ends_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_bytes(b"junk" * 10)
    step = {"graph": str(tmp_path / "model.onnx"), "level": "all", "inputs": {}, "outputs": {}}
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"folder": str(tmp_path), "frames": ["0"], "steps": [step]}))
    assert replay.main([str(job)]) == 2
    assert "model.onnx: ONNX Runtime" in capsys.readouterr().err


def test_a_step_that_cannot_be_done_ends_in_a_sentence(
    tmp_path: Path, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = {
        "graph": str(graph), "level": "all",
        "inputs": {"x": ["in/0.npy", []]}, "outputs": {"y": "out/0.npy"},
    }  # fmt: skip
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"folder": str(tmp_path), "frames": ["0"], "steps": [step]}))
    assert replay.main([str(job)]) == 2
    assert "cannot be read as an array" in capsys.readouterr().err


def test_a_step_reads_a_number_without_axes(tmp_path: Path) -> None:
    proto = model(
        [node("Add", ["x", "n"], ["y"])], [value("x", (2,)), value("n", ())], [value("y", (2,))]
    )
    step = {
        "graph": str(save(proto, tmp_path)),
        "level": "all",
        "inputs": {"x": ["x.npy", []], "n": ["n.npy", []]},
        "outputs": {"y": "y.npy"},
    }
    (tmp_path / "0").mkdir()
    np.save(tmp_path / "0" / "x.npy", np.array([1.0, 2.0], np.float32))
    np.save(tmp_path / "0" / "n.npy", np.float32(3.0))
    replay.run({"folder": str(tmp_path), "frames": ["0"], "steps": [step]})
    assert np.load(tmp_path / "0" / "y.npy").tolist() == [4.0, 5.0]


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.INT8])
def test_products_with_weights_of_few_bits_do_not_round_what_they_multiply(
    tmp_path: Path, kind: int
) -> None:
    """By default ONNX Runtime rounds it to 8 bits, which a plan's parts then do elsewhere."""
    numbers = np.random.default_rng(0)
    values = numbers.integers(-8, 8, (64, 32))
    scale = numbers.random((2, 32)).astype(np.float32)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=32),
            onnx.helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, (8, 64))],
        [onnx.helper.make_tensor_value_info("y", 1, (8, 32))],
        [
            onnx.helper.make_tensor("q", kind, values.shape, values.reshape(-1)),
            onnx.numpy_helper.from_array(scale, "s"),
        ],
    )
    path = tmp_path / "model.onnx"
    opset = onnx.helper.make_opsetid("", 21)
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[opset]), path)
    x = numbers.standard_normal((8, 64)).astype(np.float32)
    found = run_whole(path, {"x": x}, ("y",), tmp_path)
    wanted = x @ (values * scale.repeat(32, axis=0)).astype(np.float32)
    np.testing.assert_allclose(found["y"], wanted, atol=1e-5 * np.abs(wanted).max())
