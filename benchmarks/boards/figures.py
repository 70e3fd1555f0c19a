"""Summarises the turns of cells as figures with their bounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks.boards.cells import ASKED, KNOWLEDGE, LOCAL, Cell, Kind
from benchmarks.boards.turn import Launched, Turn
from benchmarks.report import Figure
from partition.objective import WITHIN

LEAST_OF_PROFILED = {"first": 0.95, "second": 0.98}
LEAST_OF_BEST = round(0.98 / (1 + WITHIN), 4)
"""The default may take longer by `within` to save memory."""

LONGEST_START_S = {"first": 8.0, "second": 4.0}
LEAST_PREDICTED, MOST_PREDICTED = 0.9, 1.1
LEAST_WELL_PREDICTED = 90.0
"""Per cent of launches."""


class Found:
    """The turns of one cell."""

    def __init__(self, cell: Cell, turns: Iterable[Turn]) -> None:
        self.cell = cell
        self._turns: dict[Kind, list[Turn]] = {}
        for turn in turns:
            if turn.cell == cell:
                self._turns.setdefault(turn.kind, []).append(turn)
        self._boards = cell.boards

    def figures(self) -> list[Figure]:
        """Return the figures of these turns."""
        if self.cell.setting == LOCAL:
            return self._starts()
        differ = self._boards is not None and not self._boards.is_equal  # else nothing is asked
        asked = LEAST_OF_PROFILED if differ else {}
        rows = [
            *self._ratios("first", "profiled", asked.get("first")),
            *self._ratios("second", "profiled", asked.get("second")),
            *self._ratios("first", "described", None),
            *self._ratios("first", "alone", 1.0),
            *self._ratios("profiled", "alone", 1.0),
            *(row for knowledge in KNOWLEDGE for row in self._best(knowledge)),
        ]
        for turns in self._turns.values():
            rows += self._rates(turns)
        return rows

    def _starts(self) -> list[Figure]:
        return [
            self._of(
                f"from launch to the first result, {knowledge} time",
                [turn.launched.first_result_s for turn in self._default(knowledge)],
                "s",
                at_most=most_s,
            )
            for knowledge, most_s in LONGEST_START_S.items()
            if self._default(knowledge)
        ]

    def _ratios(self, one: str, other: str, at_least: float | None) -> list[Figure]:
        """The rates of one kind ÷ those of another, turn by turn."""
        pairs = zip(self._default(one), self._default(other), strict=False)
        found = [a.launched.rate / b.launched.rate for a, b in pairs]
        return [self._of(f"{one} ÷ {other}", found, at_least=at_least)] if found else []

    def _best(self, knowledge: str) -> list[Figure]:
        """The default's rate ÷ that of the best single strategy with the same knowledge."""
        single = {
            kind.strategy: _median(turns, lambda found: found.rate)
            for kind, turns in self._turns.items()
            if kind.knowledge == knowledge and kind.strategy
        }
        if not single or not self._default(knowledge):
            return []
        name = max(single, key=lambda each: single[each])
        ratio = _median(self._default(knowledge), lambda found: found.rate) / single[name]
        what = f"{knowledge}: default ÷ the best single strategy"
        return [self._of(what, [ratio], at_least=LEAST_OF_BEST, note=name)]

    def _rates(self, turns: Sequence[Turn]) -> list[Figure]:
        kind = turns[0].kind
        rows = [self._of(f"{kind}: rate", [turn.launched.rate for turn in turns], "frames/s")]
        shares = [turn.efficiency for turn in turns if turn.efficiency is not None]
        if not shares or kind.knowledge == "alone":
            return rows
        least, saving = self._asked(kind)
        rows.append(self._of(f"{kind}: efficiency", shares, "n", at_least=least))
        alone = self._default("alone")
        if alone:
            whole = _median(alone, lambda found: found.held_bytes)
            saved = [100 * (1 - turn.launched.held_bytes / whole) for turn in turns]
            rows.append(self._of(f"{kind}: memory saved", saved, "%", at_least=saving))
        return rows

    def _asked(self, kind: Kind) -> tuple[float | None, float | None]:
        """The least efficiency and saving that are asked of a kind of launch."""
        boards = self._boards
        if kind != Kind("first") or boards is None or boards.board == "cpu":
            return None, None
        asked = ASKED.get(self.cell.network, {}).get(len(boards.cores))
        return (None, None) if asked is None else (asked.efficiency, asked.saving_percent)

    def _default(self, knowledge: str) -> list[Turn]:
        return list(self._turns.get(Kind(knowledge), ()))  # type: ignore[arg-type]

    def _of(self, what: str, values: Sequence[float], unit: str = "", **more: Any) -> Figure:
        return Figure.of(f"{self.cell}: {what}", values, unit, digits=4, **more)


def figures(turns: Sequence[Turn]) -> list[Figure]:
    """The figures of all cells, and how many launches were predicted well."""
    cells = list(dict.fromkeys(turn.cell for turn in turns))
    rows = [row for cell in cells for row in Found(cell, turns).figures()]
    ratios = [predicted(turn.launched) for turn in turns]
    well = sum(LEAST_PREDICTED <= ratio <= MOST_PREDICTED for ratio in ratios)
    return [
        *rows,
        Figure(
            f"launches whose predicted period ÷ measured is {LEAST_PREDICTED:g} to "
            f"{MOST_PREDICTED:g}",
            round(100 * well / len(ratios), 1),
            "%",
            at_least=LEAST_WELL_PREDICTED,
            note=f"{well} of {len(ratios)}, ratios {min(ratios):.2f} to {max(ratios):.2f}",
        ),
    ]


def predicted(found: Launched) -> float:
    """The period predicted when streaming begins ÷ that measured."""
    return found.period_predicted_s / found.period_measured_s


def row(turn: Turn) -> tuple[str, ...]:
    """A turn in words."""
    found = turn.launched
    planned = found.period_planned_s / found.period_measured_s
    share = "" if turn.efficiency is None else f" ({turn.efficiency:.3f} n)"
    return (
        str(turn.cell),
        str(turn.kind),
        f"{found.explanation.partition(':')[0]}, "
        f"{sum(board.phases for board in found.boards.values())} phases",
        f"{found.rate:.2f}{share}",
        f"{planned:.2f}, {predicted(found):.2f}",
        " ".join(f"{100 * board.busy:.0f}" for board in found.boards.values()) + " %",
        f"{found.first_result_s:.1f} s",
        f"{100 * turn.others:.0f} %, load {turn.load:.1f}",
    )


def _median(turns: Sequence[Turn], figure: Callable[[Launched], float]) -> float:
    return statistics.median(figure(turn.launched) for turn in turns)
