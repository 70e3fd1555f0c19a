"""Reads and simplifies a network of the zoo, and compares it with its file in ONNX Runtime."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort

import cnn
from benchmarks.zoo.frames import frames
from benchmarks.zoo.outcomes import AGREES, Outcome, Trial, refusal
from benchmarks.zoo.registry import Entry, file_of

LIMIT = 1e-4
"""The largest relative difference that is allowed."""

_FLOOR = 1e-6
"""Differences below it are none: of a detector that sees nothing, all results are about 0."""


def model_of(entry: Entry) -> cnn.Model:
    """The network as the project reads it; raises `cnn.ModelError`."""
    return cnn.read(
        file_of(entry.name),
        input_shapes=entry.input_shapes,
        inputs=entry.inputs,
        outputs=entry.outputs,
        state=entry.state,
    )


def read(entry: Entry, trial: Trial) -> Outcome:
    """What becomes of it: noise, a dark room, a white wall."""
    began = time.monotonic()
    try:
        model = model_of(entry)
    except cnn.ModelError as error:
        return Outcome(trial, refusal(entry, str(error)))
    seconds = time.monotonic() - began
    network = model.network
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        whole = _session(model.cut(network.layer, network.inputs, network.outputs, path).graph)
        original = _session(model.write_original(path))
    worst = 0.0
    for frame in frames(network, with_state=True):
        made = dict(zip(network.outputs, whole.run(None, frame), strict=True))
        results = {**model.constant_outputs, **made}
        names = [output.name for output in original.get_outputs()]
        for name, wanted in zip(names, original.run(None, frame), strict=True):
            worst = max(worst, _relative(results[name], wanted))
    what = AGREES if worst <= LIMIT else "differs from its original"
    if entry.refused:
        what = "runs, though it was expected to be refused"
    return Outcome(trial, what, len(network.layers), seconds=seconds, error=worst, allowed=LIMIT)


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    one, other = (np.nan_to_num(x.astype(np.float64)) for x in (found, wanted))
    difference = float(np.abs(one - other).max(initial=0.0))
    scale = float(np.abs(other).max(initial=0.0))
    return difference / max(scale, _FLOOR / LIMIT)
