"""Runs the whole model in plain ONNX Runtime, as the reference for distributed results.

`python -m nodes.executors.onnx.reference MODEL INPUTS OUTPUTS [--threads N] [--unfused]` runs MODEL
on every `INPUTS/NNNNNN.npz` (input name → array) in order of name and writes its outputs to a file
of the same name under OUTPUTS. It uses ONNX Runtime's default settings on the CPU, and shares none
with the executor that it checks; with `--unfused`, ONNX Runtime fuses no operators. For each frame
it prints a JSON line: `{"frame": "000000", "seconds": 0.07}`.

Exit code 0: all frames are written. 2: one sentence on standard error says what was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from pathlib import Path

import numpy as np

from nodes.executors.base import ExecutorError
from nodes.executors.onnx.faulty_optimizers import faulty_optimizers
from nodes.executors.onnx.sessions import (
    compute_few_bits_exactly,
    engine_errors,
    import_onnxruntime,
)
from nodes.protocol.payload import Array

_SILENT = 4


def run(model: Path, inputs: Path, outputs: Path, threads: int, *, is_fused: bool = True) -> None:
    """Run `model` on all frames of `inputs`; see the module's docstring.

    Raises ExecutorError for a model or a frame that cannot be used.
    """
    ort = import_onnxruntime()
    options = ort.SessionOptions()
    options.log_severity_level = _SILENT
    options.intra_op_num_threads = threads
    compute_few_bits_exactly(options)
    if not is_fused:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    frames = sorted(inputs.glob("*.npz"))
    if not frames:
        raise ExecutorError(f"{inputs} holds no frame (*.npz)")
    outputs.mkdir(parents=True, exist_ok=True)
    with engine_errors(ort, str(model), "load"):
        session = ort.InferenceSession(
            str(model),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=faulty_optimizers(model),
        )
    names = [output.name for output in session.get_outputs()]
    for path in frames:
        feed = _read(path)
        start_s = time.perf_counter()
        with engine_errors(ort, f"{model} on {path.name}", "run"):
            results = session.run(names, feed)
        seconds = time.perf_counter() - start_s
        _write(outputs / path.name, dict(zip(names, results, strict=True)))
        print(json.dumps({"frame": path.stem, "seconds": seconds}), flush=True)  # noqa: T201


def _read(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile, KeyError) as error:
        raise ExecutorError(f"{path} cannot be read as a frame: {error}") from error
    # ONNX Runtime reads the bytes of an array of the other byte order as if they were in this one.
    return {name: a.astype(a.dtype.newbyteorder("="), copy=False) for name, a in arrays.items()}


def _write(path: Path, arrays: dict[str, Array]) -> None:
    """Write an archive as `numpy.savez` does, which cannot store a tensor called `file`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m nodes.executors.onnx.reference",
        description=(__doc__ or "")[:80],
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("outputs", type=Path)
    parser.add_argument("--threads", type=int, default=1, help="threads that compute one frame")
    parser.add_argument("--unfused", action="store_true", help="fuse no operators")
    given = parser.parse_args(arguments)
    try:
        run(given.model, given.inputs, given.outputs, given.threads, is_fused=not given.unfused)
    except (ExecutorError, OSError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
