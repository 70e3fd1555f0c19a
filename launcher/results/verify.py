"""Whether the cluster computes what the whole model computes.

The stream's results are compared with those of plain ONNX Runtime on the unpartitioned model, run
in a process of its own after the stream so that it takes nothing from it. Inputs repeat; so the
first result of each distinct input is kept on disk, and every repeat is compared with it at once.
The error of a frame is bounded by

    error of the first result + max over repeats error of the repeat beside the first,

which is exact where repeats are bit for bit the same, as they are with one thread. Memory holds
one frame at a time. What counts as an error, and which is allowed, is for
`launcher.results.comparison.tolerance` to say; frames that are further off than the precision of
the network's numbers explains are left to `launcher.results.comparison.doubts`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from launcher.files import whole_file
from launcher.results.comparison.ranking import aligned
from launcher.results.comparison.tolerance import (
    LIMITS,
    Beginning,
    Difference,
    Numbers,
    Outputs,
    Rule,
    WorstOutput,
    apart,
    relative,
    strict,
)
from launcher.run.runtime import Array


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the results are from the whole model's: the error is that of `worst_output` of
    `worst_input`, and `rule` allows as much as `allowed`. `begins` is where they begin to differ,
    if they do and it was found."""

    max_relative_error: float
    worst_input: int
    worst_output: str
    allowed: float = LIMITS["single"].strict
    rule: Rule = "precision"
    begins: Beginning | None = None

    @property
    def agrees(self) -> bool:
        """Whether the results count as the whole model's."""
        return self.max_relative_error <= self.allowed


@dataclass(frozen=True, slots=True)
class Comparison:
    """`agreement` of all frames that agree by the strict rules; the others are `doubtful`: distinct
    input → the strict rule's verdict."""

    agreement: Agreement
    doubtful: dict[int, WorstOutput]


class FirstResults:
    """The first result of each distinct input, in `folder`, and how far repeats strayed from it."""

    def __init__(self, folder: Path, numbers: Numbers = Numbers()) -> None:  # noqa: B008 - frozen
        self._folder = folder
        self._numbers = numbers
        self._spread: dict[tuple[int, str], Difference] = {}
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
        kept = self.get(number, tuple(outputs))
        if all(_is_same(array, outputs[name]) for name, array in kept.items()):
            return
        repeat = outputs
        if self._numbers.ranks:
            repeat = aligned(outputs, kept, self._numbers.limits.strict)
        for name, array in kept.items():
            strayed = apart(repeat[name], array, self._numbers)
            known = self._spread.get((number, name), Difference())
            self._spread[number, name] = known.beside(strayed)

    def has(self, number: int) -> bool:
        """Whether there was a result of that input at all."""
        return self._file(number).exists()

    def get(self, number: int, names: tuple[str, ...]) -> dict[str, Array]:
        """The kept result: those of its outputs that are called `names`."""
        with np.load(self._file(number), allow_pickle=False) as kept:
            return {name: kept[f"arr_{self._names.index(name)}"] for name in names}

    def spread(self, number: int, wanted: Outputs) -> dict[str, float]:
        """Output → the largest error of a repeat beside the first result, where there is one."""
        return {
            name: relative(self._spread[number, name], array, self._numbers).largest
            for name, array in wanted.items()
            if (number, name) in self._spread
        }

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:06d}.npz"


def compare(
    first: FirstResults,
    names: tuple[str, ...],
    references: Iterator[tuple[int, Outputs]],
    numbers: Numbers = Numbers(),  # noqa: B008 - frozen
    given: float | None = None,
) -> Comparison:
    """Compare kept results with the whole model's, given as (distinct input, outputs), by the
    strict rules: the tolerance `given`, or what `numbers` explain."""
    allowed = numbers.limits.strict if given is None else given
    worst = Agreement(0.0, 0, "", allowed, "precision" if given is None else "given")
    doubtful: dict[int, WorstOutput] = {}
    for number, wanted in references:
        if not first.has(number):  # all its frames were dropped
            continue
        kept = first.get(number, names)
        own = {name: wanted[name] for name in names}
        found = strict(kept, own, numbers, given, first.spread(number, own))
        if found.agrees:
            worst = worse(worst, agreement(number, found))
        else:
            doubtful[number] = found
    return Comparison(worst, doubtful)


def agreement(number: int, found: WorstOutput, begins: Beginning | None = None) -> Agreement:
    """The verdict on distinct input `number`, which does not agree if it has a beginning."""
    return Agreement(found.error, number, found.output, found.allowed, found.rule, begins)


def worse(one: Agreement, other: Agreement) -> Agreement:
    """That which does not agree, or else the one with the larger error; the first of equals."""
    return max((one, other), key=lambda found: (not found.agrees, found.max_relative_error))


def worst_of(agreements: Iterable[Agreement]) -> Agreement | None:
    """The worst of several; None if there is none."""
    worst: Agreement | None = None
    for found in agreements:
        worst = found if worst is None else worse(worst, found)
    return worst


def _is_same(left: Array, right: Array) -> bool:
    """Whether two arrays hold the same, NaN in the same places included."""
    if left.shape != right.shape:
        return False
    equal = left == right
    if left.dtype.kind == "f":
        equal |= np.isnan(left) & np.isnan(right)
    return bool(np.all(equal))
