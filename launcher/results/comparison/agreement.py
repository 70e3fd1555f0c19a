"""Compares every frame's result with the whole model's by the strict rules.

Inputs are repeated, so the first result of each distinct input is kept on disk (`FirstResults`),
and every repetition is compared with it at once. After the stream the first results are compared
with the whole model's. The error of a frame is at most

    error of the first result + max over repetitions (difference between repetition and first),

which is exact if repetitions are equal bit by bit, as they are with one thread. Memory holds one
frame at a time. `launcher.results.comparison.tolerance` defines errors and rules. Frames whose
error is larger than the precision of the numbers explains are *doubtful*; they are judged by
`launcher.results.comparison.doubts`.
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
    Difference,
    FirstDifference,
    Numbers,
    Outputs,
    Rule,
    WorstOutput,
    absolute_difference,
    relative_difference,
    strict,
)
from nodes.protocol.payload import Array


@dataclass(frozen=True, slots=True)
class Agreement:
    """The distance of the results from the whole model's.

    The error is that of output `worst_output` for distinct input `worst_input`; `rule` allows an
    error of `allowed`. `begins` is where the computations begin to differ, if that was found.
    """

    max_relative_error: float
    worst_input: int
    worst_output: str
    allowed: float = LIMITS["single"].strict
    rule: Rule = "precision"
    begins: FirstDifference | None = None

    @property
    def agrees(self) -> bool:
        """Whether the results count as the whole model's."""
        return self.max_relative_error <= self.allowed

    @property
    def disagreement(self) -> str:
        """The sentence for results that do not agree."""
        return (
            f"the results differ from the whole model's, most at output {self.worst_output!r} "
            f"of frame {self.worst_input}, by more than the tolerance of {self.allowed:g} allows"
            + (f"; {self.begins.sentence}" if self.begins is not None else "")
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The `agreement` of all frames that agree by the strict rules, and the verdicts of these rules
    on the `doubtful` ones, by distinct input."""

    agreement: Agreement
    doubtful: dict[int, WorstOutput]


class FirstResults:
    """The first result of each distinct input, in `folder`, and how far repetitions differ."""

    def __init__(self, folder: Path, numbers: Numbers = Numbers()) -> None:  # noqa: B008 - frozen
        self._folder = folder
        self._numbers = numbers
        self._spread: dict[tuple[int, str], Difference] = {}
        self.names: tuple[str, ...] = ()
        """The outputs that are kept."""
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, number: int, outputs: Outputs) -> None:
        """Handle a result of distinct input `number`: keep the first, compare the others."""
        file = self._file(number)
        if not file.exists():
            self.names = tuple(outputs)
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
            strayed = absolute_difference(repeat[name], array, self._numbers)
            known = self._spread.get((number, name), Difference())
            self._spread[number, name] = known.maximum(strayed)

    def remove(self, number: int) -> None:
        """Keep the result of that input no longer."""
        self._file(number).unlink(missing_ok=True)

    def has(self, number: int) -> bool:
        """Whether there is a result of that input."""
        return self._file(number).exists()

    def get(self, number: int, names: tuple[str, ...]) -> dict[str, Array]:
        """Return the outputs called `names` of the kept result."""
        with np.load(self._file(number), allow_pickle=False) as kept:
            return {name: kept[f"arr_{self.names.index(name)}"] for name in names}

    def spread(self, number: int, wanted: Outputs) -> dict[str, float]:
        """Return, by output, the largest error of a repetition relative to the first result."""
        return {
            name: relative_difference(self._spread[number, name], array, self._numbers).largest
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
    """Compare the kept results with the whole model's (distinct input, outputs) in `references`.

    The rules are the strict ones: the tolerance `given`, or else the precision of `numbers`.
    """
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


def agreement(number: int, found: WorstOutput, begins: FirstDifference | None = None) -> Agreement:
    """Return the verdict on distinct input `number` as an agreement."""
    return Agreement(found.error, number, found.output, found.allowed, found.rule, begins)


def worse(one: Agreement, other: Agreement) -> Agreement:
    """Return the agreement that fails, or else that with the larger error; of equals the first."""
    return max((one, other), key=lambda found: (not found.agrees, found.max_relative_error))


def worst_of(agreements: Iterable[Agreement]) -> Agreement | None:
    """Return the worst of several agreements; None if there are none."""
    worst: Agreement | None = None
    for found in agreements:
        worst = found if worst is None else worse(worst, found)
    return worst


def _is_same(left: Array, right: Array) -> bool:
    """Whether two arrays are equal, with NaN in the same places."""
    if left.shape != right.shape:
        return False
    equal = left == right
    if left.dtype.kind == "f":
        equal |= np.isnan(left) & np.isnan(right)
    return bool(np.all(equal))
