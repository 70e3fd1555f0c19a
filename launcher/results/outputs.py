"""Writes results to a folder: a .npy file per frame and output, and a classifier's top classes."""

from __future__ import annotations

import csv
import io
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from launcher.errors import BadInputError, RunFailedError
from launcher.files import cannot_write, file_suffixes, whole_file
from launcher.inputs.arrays import npy_parts
from launcher.results.journal.ranges import FrameRanges, FrameSequence
from launcher.run.parts import Part
from launcher.tasks.classes import top_classes
from nodes.protocol.payload import Array

_ROW = re.compile(rb"([0-9]{1,18}),")


Row = tuple[object, ...]


class OutputFolder:
    """A folder of results; a context manager that closes `classes.csv`.

    The files of a network with one output have names like `000000.npy`, with the frame's number;
    those of a network with several, names like `000000.NAME.npy`. If `top` > 0, `classes.csv` has
    for every frame the `top` likeliest classes of the first output, with their names from `labels`
    and the frame's name from `input_name`, or else as it is given with the result;
    an existing file is overwritten except for the rows of frames that are `kept`. A run that
    `resumes` takes from it the names of results that are given again without one.
    """

    def __init__(
        self,
        folder: Path,
        outputs: tuple[str, ...],
        *,
        input_name: Callable[[int], str] | None = None,
        top: int = 0,
        labels: tuple[str, ...] = (),
        kept: FrameRanges = FrameRanges(),  # noqa: B008 - nobody changes it
        resumes: bool = False,
    ) -> None:
        self.folder = folder
        self._suffixes = file_suffixes(outputs)
        self._input_name = input_name
        self._top = top
        self._labels = labels
        self._table: _Table | None = None
        self._former: _FormerNames | None = None
        self._unsynced = FrameRanges()
        self._writing = threading.Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if top:
                head = ("frame", "input", "rank", "class", "probability", "name")
                if resumes and input_name is None:
                    self._former = _FormerNames(folder / "classes.csv")
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
        if self._former is not None:
            self._former.close()

    def write(self, frame: int, outputs: Mapping[str, Array], name: str = "") -> None:
        """Write one frame's results; raises `RunFailedError` if they cannot be written."""
        try:
            for output, array in outputs.items():
                _save(self.folder / f"{frame:06d}{self._suffixes[output]}.npy", array)
            if self._table is not None:
                self._table.append(self._classes(frame, self._name(frame, name), outputs))
            with self._writing:
                self._unsynced.add(frame)
        except OSError as error:
            raise RunFailedError(
                f"the result of frame {frame} in {error.filename}: {cannot_write(error)}"
            ) from None

    def _name(self, frame: int, given: str) -> str:
        if self._input_name is not None:
            return self._input_name(frame)
        return given if given or self._former is None else self._former.of(frame)

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

    def _classes(self, frame: int, input_name: str, outputs: Mapping[str, Array]) -> Iterator[Row]:
        output = next(iter(outputs.values()))
        for rank, guess in enumerate(top_classes(output, self._top), start=1):
            known = guess.number < len(self._labels)
            name = self._labels[guess.number] if known else ""
            probability = f"{guess.probability:.6f}"
            yield frame, input_name, rank, guess.number, probability, name


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


class _FormerNames:
    """The names of frames in the `classes.csv` of the run that is resumed, in ascending order."""

    def __init__(self, path: Path) -> None:
        self._file = None if not path.exists() else path.open(encoding="utf-8", newline="")
        self._next = (-1, "")

    def of(self, frame: int) -> str:
        """Return a frame's name, which is empty if it has none; frames are asked for in order."""
        with suppress(csv.Error, UnicodeDecodeError):  # another program has changed the file
            rows = csv.reader(self._file or ())
            while self._next[0] < frame and (row := next(rows, None)) is not None:
                if len(row) > 1 and row[0].isdecimal():
                    self._next = int(row[0]), row[1]
        return self._next[1] if self._next[0] == frame else ""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
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
        file.writelines(npy_parts(array))


class OutputFolders:
    """Writes the results of each network into its own folder."""

    def __init__(self, writers: Sequence[tuple[Part, OutputFolder]]) -> None:
        self._writers = writers

    def write(self, frame: int, outputs: Mapping[str, Array], name: str) -> None:
        """See `OutputFolder.write`."""
        for part, writer in self._writers:
            writer.write(frame, part.own(outputs, part.model.outputs), name)

    def sync(self) -> None:
        """See `OutputFolder.sync`."""
        for _part, writer in self._writers:
            writer.sync()
