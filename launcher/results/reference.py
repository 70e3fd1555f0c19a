"""What the whole model computes: plain ONNX Runtime, unpartitioned, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from launcher.errors import RunFailedError
from launcher.run.runtime import Array, Frame
from launcher.whole_files import whole_file

BATCH_BYTES = 256 << 20
"""Inputs that lie on disk at a time; beyond it the model is loaded again."""


def reference_results(
    model: Path,
    inputs: int,
    frame: Callable[[int], Frame],
    folder: Path,
    on_done: Callable[[int], None],
    *,
    is_fused: bool = True,
) -> Iterator[tuple[int, Mapping[str, Array]]]:
    """(i, what the whole model computes for distinct input i) for i in 0 … `inputs` − 1.

    `folder` holds the exchange with the reference process; `on_done` hears how many inputs are
    done. Operators are fused as ONNX Runtime does by default, unless `is_fused` is false. Raises
    `RunFailedError` if the reference fails.
    """
    given, wanted = folder / "inputs", folder / "outputs"
    for exchange in (given, wanted):
        exchange.mkdir(parents=True, exist_ok=True)
    start = 0
    while start < inputs:
        size, end = 0, start
        while end < inputs and size < BATCH_BYTES:
            arrays = frame(end)
            _write(_file(given, end), arrays)
            size += sum(array.nbytes for array in arrays.values())
            end += 1
        _run(model, given, wanted, start, on_done, is_fused=is_fused)
        for number in range(start, end):
            yield number, _load(_file(wanted, number))
            _file(given, number).unlink()
            _file(wanted, number).unlink()
        start = end


def _file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.npz"


def _write(file: Path, arrays: Mapping[str, Array]) -> None:
    """Like np.savez, which has no room for an array called `file`."""
    with whole_file(file) as opened, zipfile.ZipFile(opened, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _load(file: Path) -> Mapping[str, Array]:
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise RunFailedError(
            f"the whole model gave no result for input {int(file.stem)}; "
            "--no-verify leaves the comparison out"
        ) from None


def _run(
    model: Path,
    given: Path,
    wanted: Path,
    start: int,
    on_done: Callable[[int], None],
    *,
    is_fused: bool,
) -> None:
    module = "nodes.executors.onnx.reference"
    command = [sys.executable, "-m", module, str(model), str(given), str(wanted)]
    if not is_fused:
        command.append("--unfused")
    with (
        (wanted.parent / "reference.log").open("w+", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            for done, _ in enumerate(process.stdout or (), start=1):
                on_done(start + done)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
        if code != 0:
            log.seek(0)
            lines = log.read().strip().splitlines()
            raise RunFailedError(
                "the whole model could not be run for comparison (--no-verify leaves it out): "
                + (lines[-1] if lines else f"exit code {code}")
            )
