"""Runs a whole model in plain ONNX Runtime, as the comparison of a run does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from nodes.executors import replay


def run_whole(
    model: Path, given: Mapping[str, np.ndarray], outputs: tuple[str, ...], folder: Path
) -> dict[str, np.ndarray]:
    """Return the outputs of a model for a frame; files are written to `folder`."""
    frame = folder / "0"
    frame.mkdir()
    for name, array in given.items():
        np.save(frame / f"in {name}.npy", array)
    step = {
        "graph": str(model),
        "level": "all",
        "inputs": {name: [f"in {name}.npy", []] for name in given},
        "outputs": {name: f"out {name}.npy" for name in outputs},
    }
    replay.run({"folder": str(folder), "frames": ["0"], "steps": [step]})
    return {name: np.load(frame / f"out {name}.npy") for name in outputs}
