"""Lets ONNX Runtime write a subnet down as it would run it on this CPU, with its weights outside.

Loaded with optimisation off, such a file's weights stay pages of the file (`onnx_sessions`).
"""

from __future__ import annotations

from nodes.executors.base import LoadOptions
from nodes.executors.onnx_sessions import (
    MISTAKEN_OPTIMIZERS,
    engine_errors,
    import_onnxruntime,
    optimising_options,
)
from nodes.executors.prepared import Job, PreparedFiles

MODEL = "model.onnx"
"""The optimised model's name in its entry."""

_WEIGHTS = "model.weights"


def optimise(
    job: Job,
    options: LoadOptions,  # noqa: ARG001 - none of them changes the optimised model
    cache: PreparedFiles,
) -> None:
    """Optimise one subnet in this process; raises ExecutorError if ONNX Runtime cannot."""
    ort = import_onnxruntime()
    with cache.making(job.key) as folder, engine_errors(ort, job.subnet, "load"):
        ort.InferenceSession(
            str(job.graph),
            optimising_options(ort, folder / MODEL, _WEIGHTS),
            providers=["CPUExecutionProvider"],
            disabled_optimizers=MISTAKEN_OPTIMIZERS,
        )
