"""Has an engine compute a network of one layer, in a separate process.

`python -m nodes.doctor.engine_trial ENGINE DEVICE PRECISION` prints a JSON line:
`{"failure": sentence}`, with an empty sentence if the result is right.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.providers.probe import CONVOLUTION
from nodes.executors.registry import open_executor
from nodes.host.process import be_killed_first

GIVEN = np.linspace(0.0, 3.0, 16, dtype=np.float32).reshape(1, 4, 2, 2)
EXPECTED = np.repeat(GIVEN.mean(axis=1, keepdims=True), 4, axis=1)
"""Every weight of the convolution is 0.25, so each output channel is the mean of the inputs."""

LARGEST_ERROR = 1e-2
"""The largest error of a result, for half precision."""


def trial(engine: str, device: str, precision: str, folder: Path) -> str:
    """Return why the engine fails to compute in `folder`; empty if it computes correctly."""
    graph = folder / "graph.onnx"
    graph.write_bytes(CONVOLUTION)
    try:
        executor = open_executor(engine, folder / "cache", device=device)
        try:
            subnet = executor.load(graph, LoadOptions(precision=precision))
            y = subnet.run({"x": GIVEN})["y"]
            subnet.close()
        finally:
            executor.close()
    except ExecutorError as error:
        return str(error)
    off = float(np.abs(y - EXPECTED).max())
    return "" if off <= LARGEST_ERROR else f"its result is wrong by {off:.1g}"


def main() -> None:
    """Print how the trial of the engine on the command line has ended."""
    engine, device, precision = sys.argv[1:]
    be_killed_first()
    with tempfile.TemporaryDirectory(prefix="csdf-doctor-") as folder:
        print(json.dumps({"failure": trial(engine, device, precision, Path(folder))}))  # noqa: T201


if __name__ == "__main__":
    main()
