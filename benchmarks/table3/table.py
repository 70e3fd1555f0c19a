"""Computes a table's figures with their required bounds, and its columns of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Table
from benchmarks.table3.paper import (
    BOTH,
    LEAST_EFFICIENCY,
    LEAST_EFFICIENCY_CPU,
    LEAST_EFFICIENCY_SPLIT,
    LEAST_OF_PREDICTION,
    MOST_OF_PREDICTION,
    PAPER,
    Asked,
)
from benchmarks.table3.summary import Spread, Summary
from benchmarks.table3.turn import Cell, Refused

COLUMNS = (
    *("network", "boards", "strategy", "frames/s (predicted)", "efficiency", "speed-up (paper's)"),
    *("memory saved", "by Eq. 2 (paper's)"),
)
TITLE = (
    "Both columns of the paper's table, beside the paper's. Efficiency: the pipeline's rate ÷ that "
    "of as many whole models in the same slices; the speed-up is that times the boards. Memory "
    "saved: on the fullest board, above its idle agent, against one board with the whole network"
)


def figures(found: Sequence[Summary], board: str) -> list[Figure]:
    """The figures of which something is asked."""
    rows = []
    for one in found:
        least = _least_efficiency(one, board)
        if least is not None:
            rows.append(_figure(one, "efficiency", one.efficiency, at_least=least))
    for one in found:
        asked = _asked_of_both(one)
        if asked is not None and one.saving_percent is not None:
            saving, least = one.saving_percent, asked.saving_percent
            rows.append(_figure(one, "memory saved, measured", saving, unit="%", at_least=least))
        if asked is not None or one.cell.network == "resnet50":
            rows.append(
                _figure(
                    one,
                    "fullest agent ÷ prediction",
                    one.of_prediction,
                    at_least=None if asked is None else LEAST_OF_PREDICTION,
                    at_most=MOST_OF_PREDICTION,
                )
            )
    return rows


def _asked_of_both(one: Summary) -> Asked | None:
    if (one.cell.strategy, one.cell.objective) != ("auto", "both"):
        return None
    return BOTH.get(one.cell.network, {}).get(one.cell.devices)


def _least_efficiency(one: Summary, board: str) -> float | None:
    network, boards = one.cell.network, one.cell.devices
    asked = _asked_of_both(one)
    if asked is not None:
        return asked.efficiency if board == "accelerator" else LEAST_EFFICIENCY_CPU[boards]
    if boards == 1 or (one.cell.objective == "both" and one.cell.strategy == "auto"):
        return None
    if network == "resnet50" and (one.cell.strategy, one.cell.objective) == ("auto", "period"):
        return LEAST_EFFICIENCY[board].get(boards)
    if network in PAPER and network != "resnet50" and one.cell.strategy == "hybrid":
        return LEAST_EFFICIENCY_SPLIT if board == "accelerator" else None
    return None


def _figure(
    one: Summary,
    what: str,
    spread: Spread,
    *,
    unit: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    boards = "1 board" if one.cell.devices == 1 else f"{one.cell.devices} boards"
    return Figure.of(
        f"{one.cell.network}, {boards}, {one.cell.how}: {what}",
        (spread.low, spread.median, spread.high), unit, digits=4, at_least=at_least,
        at_most=at_most,
    )  # fmt: skip


def tables(found: Sequence[Summary], refused: Sequence[Refused]) -> list[Table]:
    """Return both columns of every cell, and what could not be measured."""
    made = [both_columns([asdict(one) for one in found])]
    if refused:
        rows = tuple(
            (one.cell.network, str(one.cell.devices), one.cell.how, one.refused) for one in refused
        )
        made.append(Table("Not measured", ("network", "n", "strategy", "why"), rows))
    return made


def both_columns(cells: Sequence[Mapping[str, Any]], most: int | None = None) -> Table:
    """Return a row for each cell of several boards; `cells` are summaries as `asdict` makes them.

    If there are more than `most`, only those of 2, 4, 6, 8 and 10 boards, of 4 and 10, or of 10.
    """
    several = [one for one in cells if one["cell"]["devices"] > 1]
    for counts in ((2, 4, 6, 8, 10), (4, 10), (10,)):
        if most is not None and len(several) > most:
            several = [one for one in several if one["cell"]["devices"] in counts]
    return Table(TITLE, COLUMNS, tuple(map(_both, several)))


def _both(one: Mapping[str, Any]) -> tuple[str, ...]:
    cell = Cell(**one["cell"])
    published = PAPER.get(cell.network, {}).get(cell.devices)
    paper = ("–", "–")
    if published is not None:
        paper = (f"{published.speedup:.1f}×", f"{published.saving_percent:.1f}")
    saved, by_eq2 = one["saving_percent"], one["eq2_saving_percent"]
    efficiency = one["efficiency"]["median"]
    return (
        Path(cell.network).stem,
        str(cell.devices),
        cell.how,
        f"{one['rate']['median']:.2f} ({one['foreseen_rate']:.2f})",
        f"{efficiency:.3f}",
        f"{efficiency * cell.devices:.2f}× ({paper[0]})",
        "–" if saved is None else f"{saved['median']:.1f} %",
        "–" if by_eq2 is None else f"{by_eq2:.1f} ({paper[1]}) %",
    )
