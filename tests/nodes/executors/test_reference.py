"""The independent check: the whole model in plain ONNX Runtime, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from csdf_edge.testing import executor_models as models
from nodes.executors.onnx import reference


def test_every_frame_gets_the_whole_models_outputs(tmp_path: Path) -> None:
    proto = models.two_in_two_out()
    graph = models.save(proto, tmp_path / "model")
    frames = tmp_path / "in"
    frames.mkdir()
    inputs = [{"a": models.normal(n, 2, 3), "b": models.normal(-1 + 9, 2, 3)} for n in range(3)]
    for number, arrays in enumerate(inputs):
        np.savez(frames / f"{number:06}.npz", **arrays)
    ran = subprocess.run(
        [sys.executable, "-m", "nodes.executors.onnx.reference", graph, frames, tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["frame"] for line in lines] == ["000000", "000001", "000002"]
    assert all(line["seconds"] > 0 for line in lines)
    for number, arrays in enumerate(inputs):
        expected = models.evaluate(proto, arrays)
        with np.load(tmp_path / "out" / f"{number:06}.npz", allow_pickle=False) as outputs:
            assert set(outputs.files) == {"sum", "difference"}
            for name in outputs.files:
                np.testing.assert_allclose(outputs[name], expected[name], rtol=1e-6)


def test_a_tensor_may_have_any_name(tmp_path: Path) -> None:
    proto = models.model(
        "names",
        [models.helper.make_node("Relu", ["gpu_0/data_0"], ["file"])],
        [("gpu_0/data_0", 1, [2])],
        [("file", 1, [2])],
    )
    graph = models.save(proto, tmp_path / "model")
    frames = tmp_path / "in"
    frames.mkdir()
    np.savez(frames / "000000.npz", **{"gpu_0/data_0": np.array([-1, 2], np.float32)})
    assert reference.main([str(graph), str(frames), str(tmp_path / "out")]) == 0
    with np.load(tmp_path / "out" / "000000.npz") as outputs:
        np.testing.assert_array_equal(outputs["file"], [0, 2])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "holds no frame"),
        (b"no archive", "000000.npz cannot be read as a frame"),
        ("pickle", "000000.npz cannot be read as a frame"),
        ({"a": np.zeros((2, 3), np.float32)}, "cannot run it"),
    ],
    ids=["none", "not an archive", "pickled objects", "an input is missing"],
)
def test_unusable_frames_end_in_a_sentence(tmp_path: Path, capsys, content, says: str) -> None:
    graph = models.save(models.two_in_two_out(), tmp_path / "model")
    frames = tmp_path / "in"
    frames.mkdir()
    frame = frames / "000000.npz"
    if isinstance(content, bytes):
        frame.write_bytes(content)
    elif isinstance(content, dict):
        np.savez(frame, **content)
    elif content == "pickle":
        np.savez(frame, a=np.array([{}], dtype=object))
    assert reference.main([str(graph), str(frames), str(tmp_path / "out")]) == 2
    assert says in capsys.readouterr().err


def test_an_unusable_model_ends_in_a_sentence(tmp_path: Path, capsys) -> None:
    np.savez(tmp_path / "000000.npz", a=np.zeros(1))
    (tmp_path / "model.onnx").write_bytes(b"junk" * 10)
    code = reference.main([str(tmp_path / "model.onnx"), str(tmp_path), str(tmp_path / "out")])
    assert code == 2
    assert "no ONNX model or is truncated" in capsys.readouterr().err


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
    frames, results = tmp_path / "frames", tmp_path / "results"
    frames.mkdir()
    x = numbers.standard_normal((8, 64)).astype(np.float32)
    np.savez(frames / "000000.npz", x=x)
    reference.run(path, frames, results, threads=1)
    wanted = x @ (values * scale.repeat(32, axis=0)).astype(np.float32)
    with np.load(results / "000000.npz") as found:
        np.testing.assert_allclose(found["y"], wanted, atol=1e-5 * np.abs(wanted).max())
