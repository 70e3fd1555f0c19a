"""Results on disk: one .npy file per frame and output, and the top classes of a classifier."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import numpy as np

from launcher.errors import BadInputError, RunFailedError
from launcher.file_names import distinct, plain
from launcher.results.classes import top_classes
from launcher.results.journal.stacks import npy_header
from launcher.run.runtime import Array
from launcher.whole_files import unwritten, whole_file

Row = tuple[object, ...]


class OutputFolder:
    """Writes results as they come in; a context manager that closes `classes.csv`.

    A network of one output gives `000000.npy`, one of several `000000.NAME.npy`, with the frame's
    number. `top` > 0 adds `classes.csv`: for every frame the `top` likeliest classes of the first
    output, with their names from `labels` where there are any.
    """

    def __init__(
        self,
        folder: Path,
        outputs: tuple[str, ...],
        *,
        input_name: Callable[[int], str],
        top: int = 0,
        labels: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self._suffixes = _suffixes(outputs)
        self._input_name = input_name
        self._top = top
        self._labels = labels
        self._table: _Table | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if top:
                head = ("frame", "input", "rank", "class", "probability", "name")
                self._table = _Table(folder / "classes.csv", head)
        except OSError as error:
            raise BadInputError(f"--output {str(folder)!r}: {unwritten(error)}") from None

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
        """Write one frame's results; `RunFailedError` if the disk does not take them."""
        try:
            for name, array in outputs.items():
                _save(self.folder / f"{frame:06d}{self._suffixes[name]}.npy", array)
            if self._table is not None:
                self._table.append(self._classes(frame, outputs))
        except OSError as error:
            raise RunFailedError(
                f"the result of frame {frame} in {error.filename}: {unwritten(error)}"
            ) from None

    def _classes(self, frame: int, outputs: Mapping[str, Array]) -> Iterator[Row]:
        output = next(iter(outputs.values()))
        for rank, guess in enumerate(top_classes(output, self._top), start=1):
            known = guess.number < len(self._labels)
            name = self._labels[guess.number] if known else ""
            probability = f"{guess.probability:.6f}"
            yield frame, self._input_name(frame), rank, guess.number, probability, name


class _Table:
    """A CSV file that grows by whole rows; raises `OSError` with its name as the disk does."""

    def __init__(self, path: Path, head: Row) -> None:
        self._path = path
        with whole_file(path) as file:
            file.write(_as_csv((head,)))
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


def _as_csv(rows: Iterable[Row]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _save(path: Path, array: Array) -> None:
    """Like `np.save`, but the file is whole or absent, and the error names a full disk as such."""
    with whole_file(path) as file:
        file.write(npy_header(array.dtype, array.shape))
        file.write(np.ascontiguousarray(array).data.cast("B") if array.nbytes else b"")


def _suffixes(outputs: tuple[str, ...]) -> dict[str, str]:
    """What follows the frame's number in the file of each output."""
    if len(outputs) == 1:
        return {outputs[0]: ""}
    names = distinct(map(plain, outputs))
    return {output: f".{name}" for output, name in zip(outputs, names, strict=True)}
