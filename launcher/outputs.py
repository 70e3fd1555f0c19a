"""Results on disk: one .npy file per frame and output, and the top classes of a classifier."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

import numpy as np

from launcher.classes import top_classes
from launcher.errors import BadInputError, RunFailedError
from launcher.runtime import Array


class OutputFolder:
    """Writes results as they come in; a context manager that closes `classes.csv`.

    A network of one output gives `000000.npy`, one of several `000000.NAME.npy`, with the frame's
    number. `top` > 0 adds `classes.csv`: for every frame its `top` likeliest classes, with their
    names from `labels` where there are any.
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
        self._file: TextIO | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if top:
                self._file = (folder / "classes.csv").open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise BadInputError(
                f"--output {str(folder)!r}: cannot be written to: {error.strerror}"
            ) from None
        if self._file is not None:
            head = ("frame", "input", "rank", "class", "probability", "name")
            csv.writer(self._file).writerow(head)

    def __enter__(self) -> OutputFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, frame: int, outputs: Mapping[str, Array]) -> None:
        """Write one frame's results; `RunFailedError` if the disk does not take them."""
        try:
            for name, array in outputs.items():
                np.save(self.folder / f"{frame:06d}{self._suffixes[name]}.npy", array)
            if self._file is not None:
                self._write_classes(self._file, frame, outputs)
        except OSError as error:
            raise RunFailedError(
                f"frame {frame}: its result cannot be written to {str(self.folder)!r}: "
                f"{error.strerror}"
            ) from None

    def _write_classes(self, file: TextIO, frame: int, outputs: Mapping[str, Array]) -> None:
        (output,) = outputs.values()
        rows = csv.writer(file)
        for rank, guess in enumerate(top_classes(output, self._top), start=1):
            known = guess.number < len(self._labels)
            name = self._labels[guess.number] if known else ""
            rows.writerow(
                (
                    frame,
                    self._input_name(frame),
                    rank,
                    guess.number,
                    f"{guess.probability:.6f}",
                    name,
                )
            )


def _suffixes(outputs: tuple[str, ...]) -> dict[str, str]:
    """What follows the frame's number in the file of each output."""
    if len(outputs) == 1:
        return {outputs[0]: ""}
    suffixes: dict[str, str] = {}
    for index, name in enumerate(outputs):
        plain = "." + re.sub(r"[^A-Za-z0-9_-]+", "_", name)
        taken = plain.lower() in (suffix.lower() for suffix in suffixes.values())
        suffixes[name] = f"{plain}.{index}" if taken else plain
    return suffixes
