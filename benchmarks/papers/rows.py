"""Rows that compare a published figure with ours, each with a verdict.

A verdict says where our figure comes from if both agree within a tolerance:

- **measured here**: on this machine or its emulated boards;
- **computed here**: from the networks, by rules or by a search;
- **recomputed from the paper's own numbers**: our part is arithmetic, so agreement says little;
- **fitted**: a constant of ours was chosen so that such figures come out.

Otherwise it is **differs because …**. **Better** is said only of the same network, the same
quantity and one strategy, which the head of the table names. **Not possible because …** means that
we have nothing to compare a figure with. A **null model** has the result without any method: random
assignments, longest-first, equal counts of layers, random times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

Source = Literal[
    "measured here", "computed here", "recomputed from the paper's own numbers", "fitted"
]
Kind = Source | Literal["better", "differs", "not possible"]

COMPUTED: Source = "computed here"
MEASURED: Source = "measured here"
RECOMPUTED: Source = "recomputed from the paper's own numbers"
FITTED: Source = "fitted"

NOTHING = "–"


def published(paper: str) -> dict[str, Any]:
    """Return what a paper has published (`published.yaml`)."""
    found: dict[str, Any] = _read()[paper]
    return found


@cache
def _read() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "published.yaml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison: `theirs`, `ours` and `null` are texts with units.

    `because` is the reason of a verdict, `null` what a null model gives.
    """

    what: str
    theirs: str
    ours: str
    kind: Kind
    because: str = ""
    null: str = NOTHING

    @property
    def verdict(self) -> str:
        """The verdict as it is printed."""
        if self.kind in ("differs", "not possible"):
            return f"{self.kind} because {self.because}"
        return self.kind + (f" ({self.because})" if self.because else "")


@dataclass(frozen=True, slots=True)
class Section:
    """One table or figure of a paper, and our rows for it, all by `strategy` if there is one.

    Raises `ValueError` if a row is called better and the section names no strategy.
    """

    paper: str
    title: str
    rows: tuple[Row, ...]
    strategy: str = ""

    def __post_init__(self) -> None:
        better = [row.what for row in self.rows if row.kind == "better"]
        if better and not self.strategy:
            raise ValueError(f"{self.title}: {better[0]!r} is better by a strategy without a name")

    @property
    def head(self) -> str:
        """The title with the strategy."""
        return f"{self.title}, by {self.strategy}" if self.strategy else self.title


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
    theirs: Values | Sequence[float],
    ours: Values | Sequence[float],
    source: Source,
    *,
    form: str = "",
    within: Sequence[float],
    better: Literal["more", "less"] | None = None,
    because: str,
    null: str = NOTHING,
) -> Row:
    """Return a row whose verdict follows from the numbers, which are shown by `form`.

    Numbers that differ by at most `within` [numbers] agree. "better" requires that none of ours is
    worse. `because` is the reason if ours differ.

    >>> compared("time", [4.0], [4.05], COMPUTED, form="{:.2f} s", within=[0.1], because="").verdict
    'computed here'
    """
    theirs = theirs if isinstance(theirs, Values) else Values.of(theirs, form)
    ours = ours if isinstance(ours, Values) else Values.of(ours, form)
    pairs = list(zip(theirs.numbers, ours.numbers, strict=True))
    close = [abs(a - b) <= most + 1e-9 for (a, b), most in zip(pairs, within, strict=True)]
    ahead = [(b > a) if better == "more" else (b < a) for a, b in pairs]
    if all(close):
        return Row(what, theirs.shown, ours.shown, source, null=null)
    if better and all(c or a for c, a in zip(close, ahead, strict=True)):
        return Row(what, theirs.shown, ours.shown, "better", null=null)
    return Row(what, theirs.shown, ours.shown, "differs", because, null)


def checked(
    what: str, theirs: str, ours: str, source: Source, *, agrees: bool, because: str
) -> Row:
    """Return a row whose verdict is `source` if `agrees`, else that it differs `because` …"""
    return (
        Row(what, theirs, ours, source) if agrees else Row(what, theirs, ours, "differs", because)
    )


def impossible(what: str, theirs: str, because: str, ours: str = NOTHING) -> Row:
    """Return a row for a figure that nothing of ours can be compared with."""
    return Row(what, theirs, ours, "not possible", because)
