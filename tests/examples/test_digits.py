"""The digits example: real weights, real held-out images, the accuracy that it claims."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
IMAGES = np.load(DIGITS / "test_images.npy")
LABELS = np.array([int(line) for line in (DIGITS / "test_labels.txt").read_text().split()])


@pytest.fixture(scope="module")
def guesses() -> np.ndarray:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(
        DIGITS / "digits.onnx", options, providers=["CPUExecutionProvider"]
    )
    frames = [session.run(None, {"image": image[None]})[0][0] for image in IMAGES]
    return np.stack(frames).argmax(axis=1)


def test_the_whole_model_reaches_the_accuracy_that_the_readme_tells(guesses: np.ndarray) -> None:
    told = re.search(r"(\d+) of (\d+) held-out images", (DIGITS / "README.md").read_text())
    assert told is not None
    right, total = int(told[1]), int(told[2])
    assert total == len(LABELS) == len(IMAGES)
    assert int((guesses == LABELS).sum()) == right
    assert right / total >= 0.97


def test_the_held_out_images_are_scikit_learns_and_each_only_once() -> None:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - it takes a second to import

    digits = load_digits()
    known: dict[bytes, int] = {}
    for image, label in zip(digits.images, digits.target, strict=True):
        known[(image / 16).astype(np.float32).tobytes()] = int(label)
    keys = [image.tobytes() for image in IMAGES]
    assert [known[key] for key in keys] == LABELS.tolist()
    assert len(set(keys)) == len(keys)
    assert 0.2 <= len(LABELS) / len(digits.target) <= 0.25


def test_the_model_is_small_branched_and_takes_one_image() -> None:
    model = onnx.load(DIGITS / "digits.onnx")
    assert (DIGITS / "digits.onnx").stat().st_size < 1_000_000
    (image,) = model.graph.input
    assert [axis.dim_value for axis in image.type.tensor_type.shape.dim] == [1, 1, 8, 8]
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("Conv") >= 8
    assert {"Add", "Concat", "BatchNormalization"} <= set(kinds)


@pytest.mark.slow
def test_launch_over_three_nodes_has_the_accuracy_of_the_whole_model(guesses: np.ndarray) -> None:
    command = [
        sys.executable,
        "-m",
        "launcher.commands.launch",
        str(DIGITS / "cluster.yaml"),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    right = int((guesses == LABELS).sum())
    assert report["frames"] == len(LABELS)
    assert report["max_relative_error"] <= 1e-4
    assert round(report["accuracy"]["distributed"] * len(LABELS)) == right
    assert round(report["accuracy"]["whole_model"] * len(LABELS)) == right
    assert [node["name"] for node in report["nodes"]] == ["left", "middle", "right"]
    assert all(node["layers"] > 0 for node in report["nodes"])
