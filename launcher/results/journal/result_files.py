"""Stores the results of many frames in one .npy file per output, row k being that of frame k,
or of frame `first` + k in a segment that begins with frame `first`.

The file has its full length from the beginning and is sparse, so that NumPy can read it at any time
while it takes only the space of what was written. An output whose shape varies has a folder with
one .npy file per frame instead, which has the frame's number.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np

from cnn.network import Tensor
from launcher.files import distinct_names, plain_name
from launcher.inputs.arrays import npy_header
from nodes.protocol.payload import Array

_MOST_OPEN = 64
"""The most files of a folder that are open because they are not yet written through to the disk."""


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output of the network: its name, dtype and shape, and the name of the file of its
    results, or of their folder if the shape varies."""

    name: str
    file: str
    dtype: str
    shape: tuple[int, ...]
    varies: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of one frame's result; if its shape varies, of one with the expected shape."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def output_specs(outputs: Iterable[Tensor]) -> tuple[OutputSpec, ...]:
    """Describe each output, with distinct file names."""
    given = list(outputs)
    files = distinct_names(plain_name(tensor.name).lstrip("_") or "output" for tensor in given)
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


def as_arrays(outputs: Sequence[OutputSpec], rows: Sequence[bytes]) -> dict[str, Array]:
    """Return a frame's result as arrays by name; `rows` has its bytes by output.

    Raises `ValueError` if the bytes are not such arrays.
    """
    found: dict[str, Array] = {}
    for spec, row in zip(outputs, rows, strict=True):
        if spec.varies:
            found[spec.name] = np.lib.format.read_array(io.BytesIO(row), allow_pickle=False)
        else:
            found[spec.name] = np.frombuffer(row, np.dtype(spec.dtype)).reshape(spec.shape)
    return found


class ResultFile:
    """The file of one output's results; its methods raise `OSError` as the disk does."""

    def __init__(self, folder: Path, spec: OutputSpec, frames: int, first: int = 0) -> None:
        """Open the file of `frames` frames from `first` on.

        Creates it, or repairs its header and length, if necessary.
        """
        self.spec = spec
        self._first = first
        header = npy_header(np.dtype(spec.dtype), (frames, *spec.shape))
        self._begin, self._size = len(header), spec.row_bytes
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.descriptor = os.open(folder / spec.file, flags, 0o600)
        try:
            if os.pread(self.descriptor, len(header), 0) != header:
                write_all(self.descriptor, header, 0)
            whole = self._begin + frames * self._size
            if os.fstat(self.descriptor).st_size != whole:
                os.ftruncate(self.descriptor, whole)
        except BaseException:
            if os.fstat(self.descriptor).st_size == 0:  # the disk is full
                (folder / spec.file).unlink()
            os.close(self.descriptor)
            raise

    def row(self, array: Array) -> memoryview:
        """Return a frame's result as it is written: its bytes in C order."""
        row = np.ascontiguousarray(array).data
        return row.cast("B") if row.nbytes else memoryview(b"")

    def write(self, frame: int, row: memoryview) -> None:
        """Write one frame's row."""
        write_all(self.descriptor, row, self._begin + (frame - self._first) * self._size)

    def read(self, frame: int) -> bytes:
        """Read the bytes of a frame's row."""
        at = self._begin + (frame - self._first) * self._size
        return os.pread(self.descriptor, self._size, at)

    def sync(self) -> None:
        """Write data through to the disk."""
        os.fdatasync(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


class ResultFolder:
    """The folder of the results of one output whose shape varies; its methods raise `OSError` as
    the disk does."""

    def __init__(self, folder: Path, spec: OutputSpec) -> None:
        """Open the folder, or create it."""
        self.spec = spec
        self._folder = folder / spec.file
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._written: SimpleQueue[int] = SimpleQueue()

    def row(self, array: Array) -> memoryview:
        """Return a frame's result as it is written: the content of an .npy file."""
        content = npy_header(array.dtype, array.shape) + np.ascontiguousarray(array).tobytes()
        return memoryview(content)

    def write(self, frame: int, row: memoryview) -> None:
        """Write one frame's row."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(self._file(frame), flags, 0o600)
        try:
            write_all(descriptor, row, 0)
        finally:
            self._written.put(descriptor)
        if self._written.qsize() >= _MOST_OPEN:
            self.sync()

    def read(self, frame: int) -> bytes:
        """Read the bytes of a frame's file; none if there is no file."""
        try:
            return self._file(frame).read_bytes()
        except FileNotFoundError:
            return b""

    def sync(self) -> None:
        """Write data through to the disk."""
        with contextlib.suppress(Empty):
            while True:
                descriptor = self._written.get_nowait()
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)

    def close(self) -> None:
        """Close the files that are still open."""
        with contextlib.suppress(Empty):
            while True:
                os.close(self._written.get_nowait())

    def _file(self, frame: int) -> Path:
        return self._folder / f"{frame:06d}.npy"


def write_all(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data` at `offset`; raises `OSError` as the disk does."""
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):  # interrupted, or the disk is full, which the next attempt reports
        written += os.pwrite(descriptor, data[written:], offset + written)
