"""A quantised network on real agents, cut wherever it may be cut."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cnn.model import read
from launcher.run.request import Request
from tests.launcher import kinds
from tests.launcher.launches import AGENTS, reported


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qdq", "qoperator"])
def test_engines_that_get_every_other_layer_round_as_one_that_has_all(
    tmp_path: Path, kind: str
) -> None:
    model = kinds.write(tmp_path / "model.onnx", kind, "scores")
    for name, frame in kinds.frames(kind).items():
        np.save(tmp_path / f"{name}.npy", frame)
    network = read(model).network
    pins = {layer.name: "ab"[number % 2] for number, layer in enumerate(network.layers)}
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        f"model: {model}\nnodes:\n  - name: a\n  - name: b\ninsecure: true\nstrategy: vertical\n"
        f"input: {tmp_path}/*.npy\npins: {json.dumps(pins)}\n"
    )
    report = reported(Request(cluster), AGENTS)
    assert report.agreement is not None
    assert report.agreement.rule == "precision"
    assert report.agrees
