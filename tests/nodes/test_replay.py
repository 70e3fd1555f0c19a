"""Steps of a computation run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nodes.executors.replay import moved, run
from tests.cnn.models import model, node, save, value


def test_a_step_reads_a_number_without_axes(tmp_path: Path) -> None:
    graph = model(
        [node("Add", ["x", "n"], ["y"])], [value("x", (2,)), value("n", ())], [value("y", (2,))]
    )
    step = {
        "graph": str(save(graph, tmp_path)),
        "level": "all",
        "moved": 0.0,
        "how": "alike",
        "inputs": {"x": ["x.npy", []], "n": ["n.npy", []]},
        "outputs": {"y": "y.npy"},
    }
    (tmp_path / "0").mkdir()
    np.save(tmp_path / "0" / "x.npy", np.array([1.0, 2.0], np.float32))
    np.save(tmp_path / "0" / "n.npy", np.float32(3.0))
    run({"folder": str(tmp_path), "frames": ["0"], "steps": [step]})
    assert np.load(tmp_path / "0" / "y.npy").tolist() == [4.0, 5.0]


def test_a_moved_number_without_axes_is_an_array_still() -> None:
    number = moved(np.array(3.0, np.float32), 1e-3, "alike")
    assert isinstance(number, np.ndarray)
    assert number.shape == ()
    assert number == np.float32(3.003)
