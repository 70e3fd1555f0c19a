"""Run models in ONNX Runtime as agents do, and with less fusion, on random frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from launcher.results.comparison.tolerance import Outputs
from nodes.executors.base import LoadOptions
from nodes.executors.onnx.faulty_optimizers import faulty_optimizers_of
from nodes.executors.onnx.sessions import import_onnxruntime, loading_options
from tests.agreement.drawn.sketch import Tensor

ort = import_onnxruntime()

Arrays = dict[str, np.ndarray]

SCALES, HALF_SCALES = (1.0, 100.0, 0.01), (1.0, 4.0, 0.01)
"""Standard deviations of the frames of noise. Numbers of half precision end at 65504. Products of
larger ones would be infinite where a tensor crosses between phases, and only there, as ONNX Runtime
computes them in single precision on processors that know nothing else."""


def frames(inputs: Mapping[str, Tensor], seed: int, *, half: bool = False) -> list[Arrays]:
    """Return frames of noise at several scales, then black, then white."""
    generator = np.random.default_rng(seed)
    found = [
        {name: _noise(x, generator, scale) for name, x in inputs.items()}
        for scale in (HALF_SCALES if half else SCALES)
    ]
    for light in (0, 1):
        whitest = {name: 1 if _is_float(x) else 255 for name, x in inputs.items()}
        found.append(
            {name: np.full(x.shape, light * whitest[name], x.dtype) for name, x in inputs.items()}
        )
    return found


def _noise(tensor: Tensor, generator: np.random.Generator, scale: float) -> np.ndarray:
    if _is_float(tensor):
        return (generator.standard_normal(tensor.shape) * scale).astype(tensor.dtype)
    return generator.integers(0, 256, tensor.shape).astype(tensor.dtype)


def _is_float(tensor: Tensor) -> bool:
    return np.dtype(tensor.dtype).kind == "f"


class Graph:
    """A model in ONNX Runtime, by default with the agents' level of fusion."""

    def __init__(self, model: Path | bytes, level: str = "all") -> None:
        levels = ort.GraphOptimizationLevel
        options = loading_options(ort, LoadOptions(), optimised=level == "none")
        if level == "basic":
            options.graph_optimization_level = levels.ORT_ENABLE_BASIC
        self._session = ort.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=faulty_optimizers_of(
                model if isinstance(model, bytes) else model.read_bytes()
            ),
        )
        self.inputs = tuple(value.name for value in self._session.get_inputs())
        self._outputs = [value.name for value in self._session.get_outputs()]

    def run(self, given: Mapping[str, np.ndarray]) -> Outputs:
        """Return the outputs by name; inputs that the model does not read are ignored."""
        feed = {name: given[name] for name in self.inputs}
        return dict(zip(self._outputs, self._session.run(None, feed), strict=True))
