"""A quantised network on real agents, its pairs of operators cut apart: no false alarm."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cnn.model import read
from launcher.job import launch
from launcher.progress import LineProgress
from launcher.request import Request
from tests.launcher import kinds


@pytest.mark.slow
def test_engines_that_fuse_nothing_across_nodes_agree_with_one_that_does(tmp_path: Path) -> None:
    model = kinds.write(tmp_path / "model.onnx", "qdq", "scores")
    for name, frame in kinds.frames("qdq").items():
        np.save(tmp_path / f"{name}.npy", frame)
    layers = read(model).network.layers
    pins = {layer.name: "a" if "Quantize" in layer.operator else "b" for layer in layers}
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        f"model: {model}\nnodes:\n  - name: a\n  - name: b\ninsecure: true\nstrategy: vertical\n"
        f"input: {tmp_path}/*.npy\npins: {json.dumps(pins)}\n"
    )
    with LineProgress(sys.stderr) as progress:
        report = launch(Request(cluster), progress, started_s=time.monotonic()).report
    assert report is not None
    assert report.agreement is not None
    assert report.agreement.max_relative_error > 1e-3
    assert report.agreement.rule == "replay"
    assert report.agrees
