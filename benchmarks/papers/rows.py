"""Rows that compare a published figure with ours, each with a verdict.

A verdict is computed from both numbers: **reproduced** within a tolerance, **better** beyond it on
the better side, **differs because …** otherwise. The reason of a row that may differ is given with
the comparison. **Not possible because …** stands where nothing of ours can be put beside a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["reproduced", "better", "differs", "not possible"]

NOTHING = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: `theirs` and `ours` are texts with units, `because` is a verdict's reason."""

    what: str
    theirs: str
    ours: str
    kind: Kind
    because: str = ""

    @property
    def verdict(self) -> str:
        """The verdict as it is printed."""
        if self.kind in ("differs", "not possible"):
            return f"{self.kind} because {self.because}"
        return self.kind + (f" ({self.because})" if self.because else "")


@dataclass(frozen=True, slots=True)
class Section:
    """One table or figure of a paper, and our rows for it."""

    paper: str
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """The numbers of one row, such as both columns of one plan, and how they are shown."""

    numbers: tuple[float, ...]
    shown: str

    @classmethod
    def of(cls, numbers: Sequence[float], form: str) -> Values:
        """Show `numbers` by a format string, such as `{:.2f} MiB`."""
        return cls(tuple(numbers), form.format(*numbers))


def compared(
    what: str,
    theirs: Values,
    ours: Values,
    *,
    within: Sequence[float],
    better: Literal["more", "less"] | None = None,
    because: str,
) -> Row:
    """Return a row whose verdict follows from the numbers.

    Numbers that differ by at most `within` [numbers] count as equal. "better" requires that none of
    ours is worse. `because` is the reason if ours differ.

    >>> theirs, ours = Values.of([4.0], "{:.1f} s"), Values.of([3.0], "{:.1f} s")
    >>> compared("time", theirs, ours, within=[0.1], better="less", because="").verdict
    'better'
    """
    pairs = list(zip(theirs.numbers, ours.numbers, strict=True))
    close = [abs(a - b) <= most + 1e-9 for (a, b), most in zip(pairs, within, strict=True)]
    ahead = [(b > a) if better == "more" else (b < a) for a, b in pairs]
    if all(close):
        return Row(what, theirs.shown, ours.shown, "reproduced")
    if better and all(c or a for c, a in zip(close, ahead, strict=True)):
        return Row(what, theirs.shown, ours.shown, "better")
    return Row(what, theirs.shown, ours.shown, "differs", because)


def impossible(what: str, theirs: str, because: str, ours: str = NOTHING) -> Row:
    """Return a row for a figure that nothing of ours can be compared with."""
    return Row(what, theirs, ours, "not possible", because)
