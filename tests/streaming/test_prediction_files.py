"""`launch --output` with a task: what was found in each picture, and the picture with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.plan.settings import read_model
from launcher.results.journal.ranges import FrameRanges
from launcher.run.request import Request
from launcher.streaming.prediction_files import keep_lines, prediction_sinks
from tests.launcher.tasks.test_open_task import ULTRALYTICS, write_detector

WAIT_S = 60.0


def write(
    folder: Path, keys: str = "task: detect\n", metadata: dict[str, str] | None = None
) -> Path:
    write_detector(folder, ULTRALYTICS if metadata is None else metadata)
    for number, name in enumerate(("gate", "yard")):
        pixels = np.zeros((32, 32, 3), np.uint8)
        pixels[8 * number : 8 * number + 8, 16:24] = 255
        Image.fromarray(pixels).save(folder / f"{name}.png")
    path = folder / "cluster.yaml"
    path.write_text(
        "model: detector.onnx\nstrategy: sequential\nnodes: [{name: a}, {name: b}]\n"
        f"input: {{files: '*.png', scale: 1, mean: 0, std: 1}}\n{keys}"
    )
    return path


def launched(path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "launcher.commands.launch", str(path), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_the_folder_has_predictions_and_pictures_with_the_names_of_the_source(
    tmp_path: Path,
) -> None:
    path, output = write(tmp_path), tmp_path / "out"
    for _ in range(2):  # the second run replaces the files of the first
        said = launched(path, "--output", str(output), "--annotate")
        lines = [
            json.loads(line) for line in (output / "predictions.jsonl").read_text().splitlines()
        ]
        assert [line["name"] for line in lines] == ["gate.png", "yard.png"]
        for number, line in enumerate(lines):
            (found,) = line["predictions"]["objects"]
            assert (found["name"], found["box"]) == (
                "dog",
                [16.0, 8.0 * number, 24.0, 8.0 * number + 8],
            )
    assert "2 of 2 results delivered" in " ".join(said.split())
    assert sorted(file.name for file in output.glob("*.npy")) == ["000000.npy", "000001.npy"]
    pictures = sorted((output / "pictures").iterdir())
    assert [picture.name for picture in pictures] == ["000000-gate.jpg", "000001-yard.jpg"]
    with Image.open(pictures[0]) as picture:
        assert picture.size == (32, 32)


@pytest.mark.parametrize(
    ("keys", "metadata", "options", "kinds"),
    [
        ("task: detect\n", {}, {"output": Path("out")}, ["json-lines"]),
        ("", None, {"output": Path("out")}, ["json-lines"]),
        ("", None, {"output": Path("out"), "annotate": True}, ["json-lines", "images"]),
        ("", {}, {"output": Path("out")}, []),
        ("task: none\n", None, {"output": Path("out")}, []),
        ("task: detect\n", None, {}, []),
    ],
)
def test_predictions_are_written_where_there_is_a_task_and_a_folder(
    tmp_path: Path,
    keys: str,
    metadata: dict[str, str] | None,
    options: dict[str, object],
    kinds: list[str],
) -> None:
    path = write(tmp_path, keys, metadata)
    cluster = load_cluster(path)
    request = Request(path, **options)  # type: ignore[arg-type]
    found = prediction_sinks(request, cluster, read_model(cluster))
    assert [sink.kind for sink in found] == kinds


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"annotate": True}, "--annotate: has no effect without --output FOLDER; add it"),
        ({"annotate": True, "output": Path("out")}, "--annotate: needs a task"),
    ],
)
def test_pictures_need_a_folder_and_a_task(
    tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    path = write(tmp_path, "", {})
    cluster = load_cluster(path)
    with pytest.raises(BadInputError, match=sentence):
        prediction_sinks(Request(path, **options), cluster, read_model(cluster))  # type: ignore[arg-type]


def test_a_resumed_run_keeps_the_lines_of_settled_frames(tmp_path: Path) -> None:
    path = tmp_path / "predictions.jsonl"
    keep_lines(path, FrameRanges())
    path.write_text("".join(f'{{"index":{n}}}\n' for n in range(5)) + '{"index":')
    keep_lines(path, FrameRanges([(0, 1), (3, 3)]))
    assert path.read_text() == '{"index":0}\n{"index":1}\n{"index":3}\n'
    keep_lines(path, FrameRanges())
    assert not path.exists()
