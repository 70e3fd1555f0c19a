"""Trials of the zoo's networks are gone on with, show black and white frames, and find what is
wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cnn
from benchmarks.zoo.frames import KINDS, frames, write
from benchmarks.zoo.outcomes import AGREES, Outcome, Trial, known
from benchmarks.zoo.registry import VARIABLE
from launcher.inputs.arrays import LastArchive, open_arrays
from tests.cnn.models import convolution, model, node, save, value

TRIAL = Trial("unet")

FLOAT, BYTE, INDEX, TRUTH, HALF = 1, 2, 7, 9, 10


def network(directory: Path, *kinds: int) -> cnn.Network:
    """One with an input of each kind."""
    inputs = [value(f"x{number}", (1, 3, 4, 4), kind) for number, kind in enumerate(kinds)]
    outputs = [value(f"y{number}", None, FLOAT) for number in range(len(kinds))]
    nodes = [
        node(kind, [f"{source}{number}"], [f"{target}{number}"], **more)
        for number in range(len(kinds))
        for kind, source, target, more in (("Cast", "x", "c", {"to": 1}), ("Tanh", "c", "y", {}))
    ]
    return cnn.read(save(model(nodes, inputs, outputs), directory)).network


def test_what_is_known_is_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    known(path).add(Outcome(TRIAL, AGREES, error=None, seconds=2.5))
    assert known(path).turns == [Outcome(TRIAL, AGREES, error=None, seconds=2.5)]


def test_what_is_known_of_other_code_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "outcomes.jsonl"
    known(path).add(Outcome(TRIAL, AGREES))
    path.write_text(path.read_text().replace('"code": "', '"code": "another '))
    assert known(path).turns == []
    assert [found.name for found in tmp_path.iterdir()] == ["outcomes.old"]


def test_there_is_a_frame_of_each_kind(tmp_path: Path) -> None:
    shown = frames(network(tmp_path, FLOAT, HALF))
    assert len(shown) == len(KINDS)
    for kind, frame in zip(KINDS, shown, strict=True):
        for name in ("x0", "x1"):
            found = frame[name]
            assert np.isfinite(found).all()
            if kind in ("black", "white", "glare"):
                assert set(found.flat) == {{"black": 0, "white": 1, "glare": 255}[kind]}
            else:
                assert len(set(found.flat)) > found.size / 4


def test_a_cameras_white_is_255_and_indices_stay_small(tmp_path: Path) -> None:
    for frame, kind in zip(frames(network(tmp_path, BYTE, INDEX, TRUTH)), KINDS, strict=True):
        assert [frame[name].dtype for name in frame] == [np.uint8, np.int64, np.bool_]
        assert frame["x1"].max() <= 99
        if kind in ("white", "glare"):
            assert (frame["x0"] == 255).all()
        if kind == "black":
            assert not any(array.any() for array in frame.values())


def test_a_launch_streams_them_in_this_order(tmp_path: Path) -> None:
    found = network(tmp_path, FLOAT, BYTE)
    tensors = [found.tensors[name] for name in found.inputs]
    shown = frames(found)
    files = write(shown, tmp_path)
    assert files == sorted(files)
    for file, frame in zip(files, shown, strict=True):
        opened = open_arrays(file, tensors, LastArchive())
        assert opened.frames == 1
        for name, array in opened.frame(0).items():
            assert np.array_equal(array, frame[name])


@pytest.mark.slow
def test_a_network_is_tried_in_separate_processes(tmp_path: Path) -> None:
    more = [node("Relu", ["y"], ["z"]), node("GlobalAveragePool", ["z"], ["p"])]
    save(convolution((1, 3, 16, 16), *more), tmp_path, "unet.onnx")
    outcomes = tmp_path / "outcomes.jsonl"
    command = [
        sys.executable, "-m", "benchmarks.zoo", "unet",
        "--launch", "sequential", "--outcomes", str(outcomes),
    ]  # fmt: skip
    again = []
    for _ in range(2):
        ran = subprocess.run(
            command, env={**os.environ, VARIABLE: str(tmp_path)}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        again.append(ran.stdout)
    assert again[0] == again[1]
    lines = [json.loads(line) for line in outcomes.read_text().splitlines()]
    assert [line["trial"]["strategy"] for line in lines[1:]] == ["", "sequential"]
    assert {line["what"] for line in lines[1:]} == {AGREES}
