"""Lets ONNX Runtime write a subnet down as it would run it on this CPU, with its weights outside.

Loaded with optimisation off, such a file's weights stay pages of the file (`onnx_sessions`).
"""

from __future__ import annotations

from nodes.executors.base import LoadOptions
from nodes.executors.onnx.alignment import realign
from nodes.executors.onnx.mistakes import mistaken_optimizers
from nodes.executors.onnx.packing import UNPACKED, multiplies_single_rows, packs_others
from nodes.executors.onnx.sessions import (
    engine_errors,
    import_onnxruntime,
    keep_packing_off,
    optimising_options,
)
from nodes.executors.prepared import Job, PreparedFiles
from nodes.executors.trial import try_out

MODEL = "model.onnx"
"""The optimised model's name in its entry."""

_WEIGHTS = "model.weights"

_LARGEST_LOOKED_THROUGH = 64 << 20
"""Bytes of a model file that is read into memory; subnets keep their weights in other files."""


def optimise(
    job: Job,
    options: LoadOptions,
    cache: PreparedFiles,
) -> None:
    """Optimise one subnet in this process, and run it once as `options` say.

    Raises ExecutorError if ONNX Runtime cannot.
    """
    ort = import_onnxruntime()
    with cache.making(job.key) as folder, engine_errors(ort, job.subnet, "load"):

        def write() -> None:
            session_options = optimising_options(ort, job.graph, folder / MODEL, _WEIGHTS)
            if unpacked:
                keep_packing_off(session_options)
            ort.InferenceSession(
                str(job.graph),
                session_options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=mistaken_optimizers(job.graph),
            )

        is_small = job.graph.stat().st_size <= _LARGEST_LOOKED_THROUGH
        unpacked = is_small and multiplies_single_rows(job.graph.read_bytes())
        write()
        if unpacked and packs_others((folder / MODEL).read_bytes()):
            unpacked = False
            write()
        weights = folder / _WEIGHTS
        if not unpacked and weights.exists() and not realign(folder / MODEL, weights):
            unpacked = True
            write()
        if unpacked:
            (folder / UNPACKED).touch()
        try_out(ort, job.subnet, folder / MODEL, options, packs=not unpacked)
