"""With sinks, the files of `input` are streamed as a source's frames are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
WAIT_S = 60.0


def launched(folder: Path, given: str, *options: str) -> list[dict[str, object]]:
    target, lines = folder / "cluster.yaml", folder / "lines.jsonl"
    target.write_text(
        f"model: {DIGITS / 'digits.onnx'}\nnodes: [{{name: left}}, {{name: right}}]\n"
        f"strategy: sequential\ninput: {given}\nsinks: [{{kind: json-lines, path: {lines}}}]\n"
    )
    command = [sys.executable, "-m", "launcher.commands.launch", str(target), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in lines.read_text().splitlines()]


def true_classes(count: int) -> list[int]:
    return [int(line) for line in (DIGITS / "test_labels.txt").read_text().split()[:count]]


def seen(lines: list[dict[str, object]]) -> list[int]:
    return [line["predictions"]["classes"][0]["class"] for line in lines]  # type: ignore[index]


@pytest.mark.slow
def test_images_are_streamed_once_in_order_and_named(tmp_path: Path) -> None:
    digits = np.load(DIGITS / "test_images.npy")[:8]
    for number, digit in enumerate(digits):
        pixels = np.round(np.squeeze(digit) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    lines = launched(tmp_path, f"{{files: '{tmp_path}/*.png', scale: 1, mean: 0, std: 1}}")
    assert [line["name"] for line in lines] == [f"{number}.png" for number in range(8)]
    assert seen(lines) == true_classes(8)


@pytest.mark.slow
def test_arrays_are_decoded_and_repeated_as_often_as_frames_asks_for(tmp_path: Path) -> None:
    np.save(tmp_path / "three.npy", np.load(DIGITS / "test_images.npy")[:3])
    report = tmp_path / "out.html"
    lines = launched(tmp_path, f"'{tmp_path}/three.npy'", "--frames", "7", "--report", str(report))
    assert "7 frames in" in report.read_text()
    assert [line["index"] for line in lines] == list(range(7))
    assert seen(lines) == (true_classes(3) * 3)[:7]


@pytest.mark.slow
def test_results_of_files_go_to_sinks_and_to_a_folder_and_are_compared(tmp_path: Path) -> None:
    np.save(tmp_path / "three.npy", np.load(DIGITS / "test_images.npy")[:3])
    (tmp_path / "truth.txt").write_text("\n".join(map(str, true_classes(3))) + "\n")
    given = f"'{tmp_path}/three.npy'\ntruth: {tmp_path}/truth.txt"
    kept = ("--output", str(tmp_path / "out"), "--journal", str(tmp_path / "kept"))
    page = tmp_path / "out.html"
    lines = launched(tmp_path, given, "--frames", "7", *kept, "--report", str(page))
    assert [line["index"] for line in lines] == list(range(7))
    assert len(list((tmp_path / "out").glob("*.npy"))) == 7
    text = page.read_text()
    assert "agrees with ONNX Runtime on the whole model" in text
    assert "accuracy 100.00%" in text
    assert "7 of 7 results delivered" in text
    assert launched(tmp_path, given, "--frames", "7", *kept, "--resume") == lines
