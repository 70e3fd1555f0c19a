"""Whether the cluster computes what the whole model computes.

The stream's results are compared with those of plain ONNX Runtime on the unpartitioned model, run
in a process of its own after the stream so that it takes nothing from it. Inputs repeat; so the
first result of each distinct input is kept on disk, and every repeat is compared with it at once.
The error of a frame is bounded by

    max |first − reference| + max over repeats |repeat − first|,  over max |reference|,

which is exact where repeats are bit for bit the same, as they are with one thread. Memory holds
one frame at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launcher.runtime import Array
from launcher.whole_files import whole_file

Outputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the results are from the whole model's; `worst_input` is where they are furthest."""

    max_relative_error: float
    worst_input: int
    worst_output: str


class FirstResults:
    """The first result of each distinct input, in `folder`, and how far repeats strayed from it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spread: dict[tuple[int, str], float] = {}
        self._names: tuple[str, ...] = ()
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, number: int, outputs: Outputs) -> None:
        """Take in a result of distinct input `number`: the first is kept, others compared."""
        file = self._file(number)
        if not file.exists():
            self._names = tuple(outputs)
            with whole_file(file) as opened:
                np.savez(opened, *outputs.values())
            return
        for name, kept in self.get(number, tuple(outputs)).items():
            if not _is_same(kept, outputs[name]):
                strayed = _largest_difference(outputs[name], kept)
                known = self._spread.get((number, name), 0.0)
                self._spread[number, name] = max(known, strayed)

    def has(self, number: int) -> bool:
        """Whether there was a result of that input at all."""
        return self._file(number).exists()

    def get(self, number: int, names: tuple[str, ...]) -> Outputs:
        """The kept result: those of its outputs that are called `names`."""
        with np.load(self._file(number), allow_pickle=False) as kept:
            return {name: kept[f"arr_{self._names.index(name)}"] for name in names}

    def relative_error(self, number: int, name: str, kept: Array, wanted: Array) -> float:
        """The bound of the module's docstring for one output.

        NaN and infinity agree with the same in the same place, and differ infinitely from all else.
        """
        difference = _largest_difference(kept, wanted) + self._spread.get((number, name), 0.0)
        sizes = np.abs(wanted.astype(np.float64))
        scale = float(np.max(sizes, initial=0.0, where=np.isfinite(sizes)))
        if not math.isfinite(difference + scale):
            return math.inf
        if scale == 0.0:
            return 0.0 if difference == 0.0 else math.inf
        return difference / scale

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:06d}.npz"


def compare(
    first: FirstResults,
    names: tuple[str, ...],
    references: Iterator[tuple[int, Outputs]],
) -> Agreement:
    """Compare kept results with the whole model's, given as (distinct input, outputs)."""
    worst = Agreement(0.0, 0, "")
    for number, wanted in references:
        if not first.has(number):  # all its frames were dropped
            continue
        kept = first.get(number, names)
        for name in names:
            error = first.relative_error(number, name, kept[name], wanted[name])
            if error > worst.max_relative_error:
                worst = Agreement(error, number, name)
    return worst


def worst_of(agreements: Iterable[Agreement]) -> Agreement | None:
    """The one with the largest error; None if there is none."""
    return max(agreements, key=lambda found: found.max_relative_error, default=None)


def _is_same(left: Array, right: Array) -> bool:
    """Whether two arrays hold the same, NaN in the same places included."""
    return np.array_equal(left, right) or _largest_difference(left, right) == 0.0


def _largest_difference(left: Array, right: Array) -> float:
    """max |left − right| in double precision; infinite for other shapes, and for NaN or infinity
    that only one of both has."""
    if left.shape != right.shape:
        return math.inf
    one, other = left.astype(np.float64), right.astype(np.float64)
    with np.errstate(all="ignore"):
        difference = np.abs(one - other)
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    largest = float(np.max(difference, initial=0.0, where=~same))
    return largest if math.isfinite(largest) else math.inf
