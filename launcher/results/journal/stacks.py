"""Results of many frames in one .npy file per output: row k is frame k's.

The file has its whole length from the beginning, with holes where nothing was written yet, so that
NumPy can read it at any time; on disk it takes only what has been written.

An output whose shape varies has a folder instead, with an .npy file for each frame.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np

from cnn.network import Tensor
from launcher.files import distinct, plain
from launcher.run.runtime import Array

_MOST_OPEN = 64
"""Files of a folder that are open until the disk has taken them."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output of the network: its name, dtype and shape, and the file of its results, or their
    folder if the shape varies."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    varies: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one frame's result; if it varies, of one of the shape reckoned with."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def output_specs(outputs: Iterable[Tensor]) -> tuple[OutputSpec, ...]:
    """Each output with the name of a file of its own."""
    given = list(outputs)
    files = distinct(plain(tensor.name).lstrip("_") or "output" for tensor in given)
    return tuple(
        OutputSpec(
            tensor.name,
            f"{file}.frames" if tensor.varies else f"{file}.npy",
            tensor.dtype,
            tensor.shape,
            tensor.varies,
        )
        for tensor, file in zip(given, files, strict=True)
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

    def row(self, array: Array) -> memoryview:
        """A frame's result as it is written: its bytes in C order."""
        row = np.ascontiguousarray(array).data
        return row.cast("B") if row.nbytes else memoryview(b"")

    def write(self, frame: int, row: memoryview) -> None:
        """Write one frame's row."""
        _write_all(self.descriptor, row, self._begin + frame * self._size)

    def read(self, frame: int) -> bytes:
        """The bytes that are there for a frame."""
        return os.pread(self.descriptor, self._size, self._begin + frame * self._size)

    def array(self, row: bytes) -> Array:
        """The bytes of a frame as an array."""
        return np.frombuffer(row, self._dtype).reshape(self.spec.shape)

    def sync(self) -> None:
        """Have the disk take what was written."""
        os.fdatasync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


class ResultFolder:
    """The results of one output whose shape varies, each in a file; raises `OSError` as the disk
    does."""

    def __init__(self, folder: Path, spec: OutputSpec) -> None:
        """Opens the folder, or makes it."""
        self.spec = spec
        self._folder = folder / spec.file
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._written: SimpleQueue[int] = SimpleQueue()

    def row(self, array: Array) -> memoryview:
        """A frame's result as it is written: an .npy file."""
        content = npy_header(array.dtype, array.shape) + np.ascontiguousarray(array).tobytes()
        return memoryview(content)

    def write(self, frame: int, row: memoryview) -> None:
        """Write one frame's row."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._file(frame), flags, 0o600)
        try:
            _write_all(descriptor, row, 0)
        finally:
            self._written.put(descriptor)
        if self._written.qsize() >= _MOST_OPEN:
            self.sync()

    def read(self, frame: int) -> bytes:
        """The bytes that are there for a frame, none if nothing is."""
        try:
            return self._file(frame).read_bytes()
        except FileNotFoundError:
            return b""

    def array(self, row: bytes) -> Array:
        """The bytes of a frame as an array."""
        found: Array = np.lib.format.read_array(io.BytesIO(row), allow_pickle=False)
        return found

    def sync(self) -> None:
        """Have the disk take what was written."""
        with contextlib.suppress(Empty):
            while True:
                descriptor = self._written.get_nowait()
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        """Close what is open."""
        with contextlib.suppress(Empty):
            while True:
                os.close(self._written.get_nowait())

    def _file(self, frame: int) -> Path:
        return self._folder / f"{frame:06d}.npy"


def npy_header(dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> bytes:
    """What stands before the values of an array, which follow in C order, in an .npy file."""
    written = io.BytesIO()
    described = np.lib.format.dtype_to_descr(dtype)
    data = {"descr": described, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(written, data)
    return written.getvalue()


def _write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):  # interrupted, or the disk is full, which the next attempt reports
        written += os.pwrite(descriptor, data[written:], offset + written)
