"""Lets ONNX Runtime write a subnet down as it would run it on this CPU, with its weights outside.

Loaded with optimisation off, such a file's weights stay pages of the file (`onnx_sessions`).

What optimising a subnet takes, and how to do without most of it where memory is short.

ONNX Runtime lays convolutions' weights out anew and packs those of matrices, which takes their
bytes once more, and a copy of the largest when it writes them down. Its other optimisations leave
weights in the file that they came in: then only one at a time is copied. ResNet50 computes 21 %
more slowly that way (91 instead of 75 ms).

Measured with ONNX Runtime 1.31, bytes that no file backs, above a process that has imported it:
ResNet50 (102 MB of weights, the largest 9 MB) 113 MB, lightly 13 MB; ResNet152 (240 MB) 250 MB;
VGG16 (553 MB, the largest 411 MB) 944 MB, lightly 403 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from nodes.executors.base import LoadOptions
from nodes.executors.onnx.file import TENSOR, OnnxFile, external_entries, walk
from nodes.executors.onnx.mistakes import mistaken_optimizers
from nodes.executors.onnx.packing import UNPACKED, multiplies_single_rows, packs_others, realign
from nodes.executors.onnx.sessions import (
    INLINE_BYTES,
    engine_errors,
    import_onnxruntime,
    keep_packing_off,
    optimising_options,
)
from nodes.executors.prepared import Job, PreparedFiles
from nodes.executors.trial import try_out

MODEL = "model.onnx"
_WEIGHTS = "model.weights"

OWN_BYTES = 40 << 20
"""What the process that optimises takes besides weights: the interpreter and ONNX Runtime 24 MB,
optimising 16 MB."""


def needed_bytes(file: OnnxFile) -> int:
    """About what optimising a subnet fully takes; weights inside the model file do not count."""
    weights = sum(path.stat().st_size for path in file.external)
    return OWN_BYTES + weights + weights // 20 + max(_weight_sizes(file.path), default=0)


def _weight_sizes(path: Path) -> Iterator[int]:
    """The bytes of each weight that lies in another file and says its length."""
    for kind, message, _ in walk(memoryview(path.read_bytes())):
        if kind == TENSOR:
            length = dict(external_entries(message) or ()).get("length")
            yield int(length or 0)


def optimise_lightly(
    job: Job,
    options: LoadOptions,
    cache: PreparedFiles,
) -> None:
    """Optimise one subnet in this process, and run it once as `options` say.

    Raises ExecutorError if ONNX Runtime cannot.
    """
    ort = import_onnxruntime()
    with cache.making(job.key) as folder, engine_errors(ort, job.subnet, "load"):
        light = ort.SessionOptions()
        light.log_severity_level = 4
        light.intra_op_num_threads = light.inter_op_num_threads = 1
        light.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        light.optimized_model_filepath = str(folder / MODEL)
        light.enable_cpu_mem_arena = False
        keep_packing_off(light)
        for key, value in (
            ("external_initializers_file_name", _WEIGHTS),
            ("external_initializers_min_size_in_bytes", str(INLINE_BYTES)),
        ):
            light.add_session_config_entry(f"session.optimized_model_{key}", value)
        ort.InferenceSession(
            str(job.graph),
            light,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=mistaken_optimizers(job.graph),
        )
        try_out(ort, job.subnet, folder / MODEL, options, packs=False)


"""The optimised model's name in its entry."""


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
