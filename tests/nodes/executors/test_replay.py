"""Steps that are run again: variants of rounding, and tensors inside a graph as outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from csdf_edge.testing import executor_models as models
from nodes.executors import replay

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


@pytest.mark.parametrize("level", ["all", "basic", "none", "agent"])
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
    common = {"graph": str(graph), "level": level, "moved": 0.0, "how": "alike"}
    job = tmp_path / "job.json"
    job.write_text(
        json.dumps({"folder": str(folder), "frames": ["7"], "steps": [s | common for s in steps]})
    )
    assert replay.main([str(job)]) == 0
    np.testing.assert_allclose(
        np.load(folder / "7" / "b" / "1.npy"), np.exp(-np.exp(-x[2:6])), rtol=1e-6
    )


def test_a_step_that_cannot_be_done_ends_in_a_sentence(
    tmp_path: Path, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = {
        "graph": str(graph), "level": "all", "moved": 0.0, "how": "alike",
        "inputs": {"x": ["in/0.npy", []]}, "outputs": {"y": "out/0.npy"},
    }  # fmt: skip
    job = tmp_path / "job.json"
    job.write_text(json.dumps({"folder": str(tmp_path), "frames": ["0"], "steps": [step]}))
    assert replay.main([str(job)]) == 2
    assert "cannot be read as an array" in capsys.readouterr().err


def test_a_move_is_by_one_unit_in_the_last_place_and_an_empty_frame_moves_too() -> None:
    unit = 2.0**-23
    np.testing.assert_array_equal(
        replay.moved(np.array([1, -2, 0], np.float32), unit, "alike"),
        np.array([1 + unit, -2 + 2 * unit, 2 * unit], np.float32),
    )
    black = replay.moved(np.zeros(3, np.float32), unit, "alike")
    np.testing.assert_array_equal(black, np.full(3, unit, np.float32))
    mixed = replay.moved(np.ones(64, np.float32), unit, "mixed")
    assert {*mixed.tolist()} == {1 - unit, 1 + unit}
    even = replay.moved(np.array([1, 4], np.float32), 2.0**-8, "evenly")
    np.testing.assert_array_equal(even, np.array([1 + 2.0**-6, 4 + 2.0**-6], np.float32))


def test_whole_numbers_are_not_moved() -> None:
    pixels = np.array([0, 255], np.uint8)
    np.testing.assert_array_equal(replay.moved(pixels, 0.5, "evenly"), pixels)
