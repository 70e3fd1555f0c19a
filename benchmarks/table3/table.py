"""Summarises the launches of Table 3: both columns, figures with their bounds, columns of text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.boards.cells import ASKED, Asked
from benchmarks.boards.turn import Turn
from benchmarks.report import Figure, Table
from benchmarks.table3.paper import (
    LEAST_EFFICIENCY_CPU,
    LEAST_EFFICIENCY_SPLIT,
    OF_PREDICTION,
    PAPER,
)
from partition.objective import DEFAULT_OBJECTIVE

COLUMNS = (
    *("network", "boards", "strategy", "frames/s (predicted)", "efficiency", "speed-up (paper's)"),
    *("memory saved", "by Eq. 2 (paper's)"),
)
STRATEGY = COLUMNS.index("strategy")
TITLE = (
    "Both columns of the paper's table, beside the paper's. Efficiency: the pipeline's rate ÷ that "
    "of as many whole models in the same slices; the speed-up is that times the boards. Memory "
    "saved: on the fullest board, above its idle agent, against one board with the whole network"
)


@dataclass(frozen=True, order=True)
class Cell:
    """A network on a number of boards, divided by a strategy for an objective."""

    network: str
    devices: int
    strategy: str
    objective: str

    @classmethod
    def of(cls, turn: Turn) -> Cell:
        """The cell of a launch."""
        boards = turn.cell.boards
        assert boards is not None
        strategy, _, objective = turn.kind.strategy.partition(":")
        count = len(boards.cores)
        return cls(turn.cell.network, count, strategy, objective or DEFAULT_OBJECTIVE)

    @property
    def how(self) -> str:
        """The strategy, with its objective where that is not the usual one."""
        usual = self.objective == DEFAULT_OBJECTIVE
        return self.strategy if usual else f"{self.strategy}:{self.objective}"


def summaries(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Summarise launches by network, boards and strategy, as a result stores them.

    Memory is that of the board that holds most: by Eq. 2, and measured above the idle agent.
    `of_prediction` is the worst agent's peak ÷ its plan's prediction. Savings are against one
    board, in per cent, and None where that was not measured. Rates in frames per second.
    """
    by_cell: dict[Cell, list[Turn]] = {}
    for turn in turns:
        by_cell.setdefault(Cell.of(turn), []).append(turn)
    alone = {cell.network: found for cell, found in by_cell.items() if cell.devices == 1}
    return [_summary(cell, by_cell[cell], alone.get(cell.network)) for cell in sorted(by_cell)]


def _summary(cell: Cell, turns: Sequence[Turn], alone: Sequence[Turn] | None) -> dict[str, Any]:
    launches = [turn.launched for turn in turns]
    eq2, saving, eq2_saving = launches[0].eq2_bytes, None, None
    if alone is not None and cell.devices > 1:
        eq2_saving = 100 * (1 - eq2 / alone[0].launched.eq2_bytes)
        held = statistics.median(turn.launched.held_bytes for turn in alone)
        saving = _spread(100 * (1 - one.held_bytes / held) for one in launches)
    boards = turns[0].cell.boards
    return {
        "cell": asdict(cell),
        "board": "" if boards is None else boards.board,
        "turns": len(turns),
        "efficiency": _spread(turn.efficiency or 0.0 for turn in turns),
        "rate": _spread(one.rate for one in launches),
        "foreseen_rate": statistics.median(1 / one.period_predicted_s for one in launches),
        "others": statistics.median(turn.others for turn in turns),
        "eq2_bytes": eq2,
        "eq2_saving_percent": eq2_saving,
        "saving_percent": saving,
        "of_prediction": _spread(one.of_prediction for one in launches),
    }


def _spread(values: Iterable[float]) -> dict[str, float]:
    found = list(values)
    return {"median": statistics.median(found), "low": min(found), "high": max(found)}


def figures(found: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """The figures of summaries of which something is asked."""
    rows = [
        _figure(one, "efficiency", "efficiency", at_least=least)
        for one in found
        if (least := _least_efficiency(one)) is not None
    ]
    for one in found:
        asked = _asked(one)
        if asked is not None and one["saving_percent"] is not None:
            bounds = {"unit": "%", "at_least": asked.saving_percent}
            rows.append(_figure(one, "memory saved, measured", "saving_percent", **bounds))
        if asked is not None or one["cell"]["network"] == "resnet50":
            bounds = {"at_most": OF_PREDICTION[1]}
            bounds |= {} if asked is None else {"at_least": OF_PREDICTION[0]}
            rows.append(_figure(one, "fullest agent ÷ prediction", "of_prediction", **bounds))
    return rows


def _asked(one: Mapping[str, Any]) -> Asked | None:
    cell = Cell(**one["cell"])
    is_default = (cell.strategy, cell.objective) == ("auto", "both")
    return ASKED.get(cell.network, {}).get(cell.devices) if is_default else None


def _least_efficiency(one: Mapping[str, Any]) -> float | None:
    asked, cell, is_cpu = _asked(one), Cell(**one["cell"]), one["board"] == "cpu"
    if asked is not None:
        return LEAST_EFFICIENCY_CPU[cell.devices] if is_cpu else asked.efficiency
    is_split = cell.strategy == "hybrid" and cell.network in ("yolov2", "vgg16")
    return LEAST_EFFICIENCY_SPLIT if is_split and not is_cpu else None


def _figure(one: Mapping[str, Any], what: str, key: str, **more: Any) -> Figure:
    cell = Cell(**one["cell"])
    boards = "1 board" if cell.devices == 1 else f"{cell.devices} boards"
    name = f"{cell.network}, {boards}, {cell.how}: {what}"
    return Figure.of(name, one[key].values(), digits=4, **more)


def both_columns(cells: Sequence[Mapping[str, Any]], most: int | None = None) -> Table:
    """Return a row for each cell of several boards; `cells` are `summaries`.

    If there are more than `most`, only those of 2, 4, 6, 8 and 10 boards, of 4 and 10, or of 10.
    A single strategy is not repeated in each row.
    """
    several = [one for one in cells if one["cell"]["devices"] > 1]
    for counts in ((2, 4, 6, 8, 10), (4, 10), (10,)):
        if most is not None and len(several) > most:
            several = [one for one in several if one["cell"]["devices"] in counts]
    rows = list(map(_both, several))
    if len({row[STRATEGY] for row in rows}) != 1:
        return Table(TITLE, COLUMNS, tuple(rows))
    return Table(TITLE, _without_strategy(COLUMNS), tuple(map(_without_strategy, rows)))


def _without_strategy(row: tuple[str, ...]) -> tuple[str, ...]:
    return row[:STRATEGY] + row[STRATEGY + 1 :]


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
