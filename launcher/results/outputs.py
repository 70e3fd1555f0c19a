"""Writes results to a folder: a .npy file per frame and output, and a classifier's top classes."""

from __future__ import annotations

import csv
import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

import numpy as np

from launcher.errors import BadInputError, RunFailedError
from launcher.files import cannot_write, file_suffixes, whole_file
from launcher.inputs.arrays import npy_header
from launcher.results.journal.ranges import FrameRanges, FrameSequence
from launcher.run.runtime import Array
from launcher.tasks.classes import top_classes

_ROW = re.compile(rb"([0-9]{1,18}),")


Row = tuple[object, ...]


class OutputFolder:
    """A folder of results; a context manager that closes `classes.csv`.

    The files of a network with one output have names like `000000.npy`, with the frame's number;
    those of a network with several, names like `000000.NAME.npy`. If `top` > 0, `classes.csv` has
    for every frame the `top` likeliest classes of the first output, with their names from `labels`;
    an existing file is overwritten except for the rows of frames that are `kept`.
    """

    def __init__(
        self,
        folder: Path,
        outputs: tuple[str, ...],
        *,
        input_name: Callable[[int], str],
        top: int = 0,
        labels: tuple[str, ...] = (),
        kept: FrameRanges = FrameRanges(),  # noqa: B008 - nobody changes it
    ) -> None:
        self.folder = folder
        self._suffixes = file_suffixes(outputs)
        self._input_name = input_name
        self._top = top
        self._labels = labels
        self._table: _Table | None = None
        self._unsynced = FrameRanges()
        self._writing = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if top:
                head = ("frame", "input", "rank", "class", "probability", "name")
                self._table = _Table(folder / "classes.csv", head, kept)
        except OSError as error:
            raise BadInputError(f"--output {str(folder)!r}: {cannot_write(error)}") from None

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._table is not None:
            self._table.close()

    def write(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Write one frame's results; raises `RunFailedError` if they cannot be written."""
        try:
            for name, array in outputs.items():
                _save(self.folder / f"{frame:06d}{self._suffixes[name]}.npy", array)
            if self._table is not None:
                self._table.append(self._classes(frame, outputs))
            with self._writing:
                self._unsynced.add(frame)
        except OSError as error:
            raise RunFailedError(
                f"the result of frame {frame} in {error.filename}: {cannot_write(error)}"
            ) from None

    def sync(self) -> None:
        """Return once the disk has all results that were written; another thread may write.

        Raises `OSError` as the disk does.
        """
        with self._writing:
            frames, self._unsynced = FrameSequence(self._unsynced), FrameRanges()
        for frame in frames:
            for suffix in self._suffixes.values():
                with suppress(FileNotFoundError):  # outputs of other networks
                    _sync(self.folder / f"{frame:06d}{suffix}.npy", os.O_RDONLY)
        if self._table is not None:
            _sync(self.folder / "classes.csv", os.O_RDONLY)
        _sync(self.folder, os.O_RDONLY | os.O_DIRECTORY)

    def _classes(self, frame: int, outputs: Mapping[str, Array]) -> Iterator[Row]:
        output = next(iter(outputs.values()))
        for rank, guess in enumerate(top_classes(output, self._top), start=1):
            known = guess.number < len(self._labels)
            name = self._labels[guess.number] if known else ""
            probability = f"{guess.probability:.6f}"
            yield frame, self._input_name(frame), rank, guess.number, probability, name


class _Table:
    """A CSV file that grows by whole rows; raises `OSError` with the file's name."""

    def __init__(self, path: Path, head: Row, kept: FrameRanges) -> None:
        self._path = path
        with whole_file(path, durable=bool(kept)) as file:
            file.write(_as_csv((head,)))
            if kept and path.exists():
                with path.open("rb") as before:
                    file.writelines(_rows_of(before, kept))
        self._file = path.open("ab", buffering=0)

    def append(self, rows: Iterable[Row]) -> None:
        """Write all of these rows, or none."""
        before = os.fstat(self._file.fileno()).st_size
        left = _as_csv(rows)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            os.ftruncate(self._file.fileno(), before)
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _rows_of(lines: Iterable[bytes], frames: FrameRanges) -> Iterator[bytes]:
    """Yield the lines of the rows of these frames; a name may have line breaks."""
    is_wanted = False
    for line in lines:
        if found := _ROW.match(line):
            is_wanted = int(found[1]) in frames
        if is_wanted:
            yield line


def _as_csv(rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _save(path: Path, array: Array) -> None:
    """Write as `np.save` does, but leave no partial file if the disk is full."""
    with whole_file(path) as file:
        file.write(npy_header(array.dtype, array.shape))
        file.write(np.ascontiguousarray(array).data.cast("B") if array.nbytes else b"")
