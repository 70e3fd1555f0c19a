"""Run models in ONNX Runtime as agents do, and with less fusion, on random frames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from launcher.results.comparison.tolerance import Outputs
from nodes.executors.base import EngineFailedError, LoadOptions
from nodes.executors.onnx.faulty_optimizers import faulty_optimizers_of
from nodes.executors.onnx.file import check_optimised
from nodes.executors.onnx.optimise import MODEL, open_prepared, optimise, optimise_lightly
from nodes.executors.onnx.packing import UNPACKED
from nodes.executors.onnx.sessions import import_onnxruntime, loading_options
from nodes.executors.preparing.entries import Job, PreparedFiles
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
    """A model in ONNX Runtime, with the agents' level of fusion or with nothing fused."""

    def __init__(self, model: Path | bytes, *, is_fused: bool = True) -> None:
        options = loading_options(ort, LoadOptions(), optimised=not is_fused)
        self._open(
            ort.InferenceSession(
                model if isinstance(model, bytes) else str(model),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=faulty_optimizers_of(
                    model if isinstance(model, bytes) else model.read_bytes()
                ),
            )
        )

    def _open(self, session: Any) -> None:
        self._session = session
        self.inputs = tuple(value.name for value in self._session.get_inputs())
        self._outputs = [value.name for value in self._session.get_outputs()]

    def run(self, given: Mapping[str, np.ndarray]) -> Outputs:
        """Return the outputs by name; inputs that the model does not read are ignored."""
        feed = {name: given[name] for name in self.inputs}
        return dict(zip(self._outputs, self._session.run(None, feed), strict=True))


class Prepared(Graph):
    """A model that agents would load: the engine has optimised and saved it, and loads it again.

    What cannot be loaded is optimised less, as `PreparingProcess` does.
    """

    def __init__(self, model: Path) -> None:
        entries = PreparedFiles(model.parent / "entries")
        full = Job(model, model.name, f"onnxruntime-{model.name}")
        job = next(job for job in full.variants if _is_made(job, entries))
        entry = entries.find(job.key)
        assert entry is not None
        path = entry / MODEL
        weights_in = model.parent if job.optimisation == "off" else None
        check_optimised(path, weights_in)
        packs = job is full and not (entry / UNPACKED).exists()
        self._open(open_prepared(ort, path, LoadOptions(), packs=packs, weights_in=weights_in))


def _is_made(job: Job, entries: PreparedFiles) -> bool:
    """Prepare a job; False if the engine cannot, and could in another way."""
    make = optimise if job.optimisation == "full" else optimise_lightly
    try:
        make(job, LoadOptions(), entries)
    except EngineFailedError:
        if job.lighter is None:
            raise
        return False
    return True
