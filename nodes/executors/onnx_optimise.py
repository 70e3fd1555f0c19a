"""Lets ONNX Runtime write a subnet down as it would run it on this CPU, with its weights outside.

Loaded with optimisation off, such a file's weights stay pages of the file (`onnx_sessions`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nodes.executors.base import LoadOptions
from nodes.executors.onnx_alignment import realign
from nodes.executors.onnx_layout import marked, unmarked
from nodes.executors.onnx_mistakes import mistaken_optimizers
from nodes.executors.onnx_packing import UNPACKED, multiplies_single_rows, packs_others
from nodes.executors.onnx_sessions import (
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

_LARGEST_EDITED = 64 << 20
"""Bytes of a model file that is edited in memory; subnets keep their weights in other files."""


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

        def write(model: str | bytes) -> None:
            session_options = optimising_options(ort, job.graph, folder / MODEL, _WEIGHTS)
            if unpacked:
                keep_packing_off(session_options)
            ort.InferenceSession(
                model,
                session_options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=mistaken_optimizers(job.graph),
            )

        unpacked = _is_small(job.graph) and multiplies_single_rows(job.graph.read_bytes())
        _write(job.graph, folder / MODEL, write)
        if unpacked and packs_others((folder / MODEL).read_bytes()):
            unpacked = False
            _write(job.graph, folder / MODEL, write)
        weights = folder / _WEIGHTS
        if not unpacked and weights.exists() and not realign(folder / MODEL, weights):
            unpacked = True
            _write(job.graph, folder / MODEL, write)
        if unpacked:
            (folder / UNPACKED).touch()
        try_out(ort, job.subnet, folder / MODEL, options, packs=not unpacked)


def _write(graph: Path, model: Path, write: Callable[[str | bytes], None]) -> None:
    if not _write_in_own_layout(graph, model, write):
        write(str(graph))


def _is_small(graph: Path) -> bool:
    return graph.stat().st_size <= _LARGEST_EDITED


def _write_in_own_layout(graph: Path, model: Path, write: Callable[[str | bytes], None]) -> bool:
    """Whether `write` has made `model` with `onnx_layout`; not where that gains nothing, and not
    with a version of ONNX Runtime that does not find the weights of a model in memory."""
    if not _is_small(graph):
        return False
    try:
        edited = marked(graph.read_bytes())
        if edited is None:
            return False
        write(edited)
        model.write_bytes(unmarked(model.read_bytes()))
    except Exception:  # noqa: BLE001 - what is wrong with the model itself, the next attempt says
        return False
    return True
