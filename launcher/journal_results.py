"""Results of many frames in one .npy file per output: row k is frame k's.

The file has its whole length from the beginning, with holes where nothing was written yet, so that
NumPy can read it at any time; on disk it takes only what has been written.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launcher.file_names import distinct, plain
from launcher.runtime import Array


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output of the network: its name, dtype and shape, and the file of its results."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one frame's result."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def output_specs(outputs: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[OutputSpec, ...]:
    """(name, dtype, shape) of each output → the same with a file name of its own."""
    given = list(outputs)
    files = distinct(plain(name).lstrip("_") or "output" for name, _, _ in given)
    return tuple(
        OutputSpec(name, f"{file}.npy", dtype, tuple(shape))
        for (name, dtype, shape), file in zip(given, files, strict=True)
    )


class ResultFile:
    """The results of one output over all frames; raises `OSError` as the disk does."""

    def __init__(self, folder: Path, spec: OutputSpec, frames: int) -> None:
        """Opens the file, and makes of it what it should be if a crash, or nobody, has."""
        self.spec = spec
        self._dtype = np.dtype(spec.dtype)
        header = npy_header(self._dtype, (frames, *spec.shape))
        self._begin, self._size = len(header), spec.row_bytes
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.descriptor = os.open(folder / spec.file, flags, 0o600)
        try:
            if os.pread(self.descriptor, len(header), 0) != header:
                _write_all(self.descriptor, header, 0)
            whole = self._begin + frames * self._size
            if os.fstat(self.descriptor).st_size != whole:
                os.ftruncate(self.descriptor, whole)
        except BaseException:
            if os.fstat(self.descriptor).st_size == 0:  # the disk is full
                (folder / spec.file).unlink()
            os.close(self.descriptor)
            raise

    def write(self, frame: int, row: bytes | memoryview) -> None:
        """Write the bytes of one frame's result, in C order."""
        _write_all(self.descriptor, row, self._begin + frame * self._size)

    def read(self, frame: int) -> bytes:
        """The bytes that are there for a frame."""
        return os.pread(self.descriptor, self._size, self._begin + frame * self._size)

    def array(self, row: bytes) -> Array:
        """The bytes of a frame as an array."""
        return np.frombuffer(row, self._dtype).reshape(self.spec.shape)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def npy_header(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    """What stands before the values of an array, which follow in C order, in an .npy file."""
    written = io.BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    data = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, data)
    return written.getvalue()


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):  # interrupted, or the disk is full, which the next attempt tells
        written += os.pwrite(descriptor, data[written:], offset + written)
