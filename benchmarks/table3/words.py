"""Formats a table in columns of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report import Figure, Table
from benchmarks.table3.turn import Cell, Refused, Turn

HOLDS = {True: "reached", False: "MISSED", None: ""}


def as_text(figures: Sequence[Figure], tables: Sequence[Table]) -> str:
    """All tables, and below them what was asked for."""
    blocks = [f"{table.title}\n{_columns((table.columns, *table.rows))}" for table in tables]
    asked = [
        (one.what, f"{one.measured:g} {one.unit}".strip(), _bound(one), HOLDS[one.holds])
        for one in figures
        if not isinstance(one.measured, str)
    ]
    if asked:
        blocks.append("Asked\n" + _columns(asked))
    return "\n\n".join(blocks)


def _bound(one: Figure) -> str:
    return f"≥ {one.at_least:g}" if one.at_least is not None else f"≤ {one.at_most:g}"


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def name(cell: Cell) -> str:
    """A cell in a line."""
    return f"{cell.network} on {cell.devices}, {cell.how}"


def line(turn: Turn | Refused) -> str:
    """A turn as soon as it is done."""
    if isinstance(turn, Refused):
        return f"{name(turn.cell)}: {turn.refused}"
    before, after = turn.replicas
    return (
        f"{name(turn.cell)}: {turn.rate:.2f} frames/s; replicas before and after {before:.2f}, "
        f"{after:.2f}: {turn.efficiency:.3f}"
    )


def duration(seconds: float) -> str:
    """About, in minutes or hours."""
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"
