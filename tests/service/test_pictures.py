"""`launch up` takes pictures: they are read as the present generation says."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from benchmarks.service.server import Up
from tests.launcher.tasks.test_open_task import ULTRALYTICS, write_detector
from tests.serve.test_pictures import DOG, PICTURE

pytest.importorskip("grpc", reason="needs the extra serve")

pytestmark = pytest.mark.slow


def write(folder: Path, *lines: str) -> Path:
    text = "\n".join(["model: detector.onnx", "nodes: [{name: a}]", *lines])
    (folder / "cluster.yaml").write_text(text)
    return folder / "cluster.yaml"


def predicted(up: Up) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{up.http}/v1/predict/detector", PICTURE) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_a_change_of_the_task_or_of_the_input_needs_no_new_release(tmp_path: Path) -> None:
    write_detector(tmp_path, ULTRALYTICS)
    up = Up(tmp_path, write(tmp_path, "task: detect"))
    up.read_until(" serves")
    assert predicted(up)["predictions"]["objects"] == [DOG]
    stretched = write(tmp_path, "task: detect", "input: {files: random, resize: stretch}")
    assert up.command("apply", str(stretched))[0] == 0
    (found,) = predicted(up)["predictions"]["objects"][:1]
    assert found["box"][2] - found["box"][0] == 16.0  # a cell of 4 of 16 columns of 64 pixels
    assert found["box"][3] - found["box"][1] == 8.0
    assert up.command("apply", str(write(tmp_path, "task: none")))[0] == 0
    assert predicted(up)["outputs"]["o"]["shape"] == [1, 6, 16]
    assert up.end() == 0
