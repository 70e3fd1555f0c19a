"""Results on disk: one .npy file per frame and output, and the top classes of a classifier.

Classifiers: whether a network is one, its top classes per frame, labels and accuracy.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from cnn.network import Network
from launcher.config.units import brief
from launcher.errors import BadInputError, RunFailedError
from launcher.files import distinct, plain, read_small, unwritten, whole_file
from launcher.results.journal.stacks import npy_header
from launcher.run.runtime import Array

_CLASS = re.compile("[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Guess:
    """One class that a classifier gives a frame, with its probability in 0..1."""

    number: int
    probability: float


def is_classifier(network: Network) -> bool:
    """Whether the network has one floating-point output that is one score per class.

    Shapes such as [1, 1000], [1, 1000, 1, 1] or [1000]: one axis longer than 1, the batch 1.
    """
    if len(network.outputs) != 1:
        return False
    tensor = network.tensors[network.outputs[0]]
    if tensor.varies:
        return False
    significant = [length for length in tensor.shape if length > 1]
    batch_is_one = len(tensor.shape) < 2 or tensor.shape[0] == 1
    floating = np.issubdtype(np.dtype(tensor.dtype), np.floating)
    return bool(floating and batch_is_one and len(significant) == 1)


def top_classes(output: Array, count: int) -> tuple[Guess, ...]:
    """The `count` likeliest classes of a classifier's output, the likeliest first.

    Scores that are no probabilities yet (not within 0..1 with the sum 1) go through a softmax.
    Ties go to the lower class.
    """
    scores = output.reshape(-1).astype(np.float64)
    best = np.argsort(-scores, kind="stable")[:count]
    probabilities = scores
    if scores.min() < 0 or abs(scores.sum() - 1) > 1e-2:
        powers = np.exp(scores - scores.max())
        probabilities = powers / powers.sum()
    return tuple(Guess(int(number), float(probabilities[number])) for number in best)


def top_class(outputs: Mapping[str, Array]) -> int:
    """The likeliest class of the only output."""
    (output,) = outputs.values()
    return int(np.argmax(output.reshape(-1)))


def read_labels(path: Path) -> tuple[str, ...]:
    """Class names, one per line; `BadInputError` if the file cannot be read."""
    return tuple(line.strip() for line in _lines(path))


def read_truth(path: Path, inputs: int) -> tuple[int, ...]:
    """The class of each input, one whole number per line; as many as there are inputs.

    Raises `BadInputError` naming file and line.
    """
    classes: list[int] = []
    for number, line in enumerate(_lines(path), start=1):
        if not _CLASS.fullmatch(line.strip()):
            raise BadInputError(
                f"{path}, line {number}: {brief(line.strip())} is no class; write a whole number"
            )
        classes.append(int(line))
    if len(classes) != inputs:
        raise BadInputError(
            f"{path}: has {len(classes)} classes for {inputs} inputs; write one line for each"
        )
    return tuple(classes)


def _lines(path: Path) -> list[str]:
    try:
        return read_small(path).decode("utf-8").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read as text: {error}") from None


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
