"""Divides a network by many strategies and compares the plans (`csdf-edge partition compare`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ga.strategies import find_strategy
from launcher.commands.options import MOST_DEVICES, CompareOptions
from launcher.commands.problems import (
    Search,
    equal_problem,
    parse_within,
    read_network,
)
from launcher.commands.solve import Solved, solve
from launcher.errors import BadInputError
from launcher.plan.settings import check_strategy_option
from launcher.progress import open_progress
from launcher.quantities import megabytes
from launcher.results.energy_text import joules
from launcher.results.report_text import print_table
from launcher.results.tables import RowTable
from partition.objective import Objective
from partition.prediction.timing import energy_j, power_w

USUAL = (
    "sequential-count",
    "sequential-balanced",
    "sequential",
    "k-stage",
    "horizontal",
    "tiles",
    "batch-split",
    "vertical-paper",
    "vertical",
    "replicated",
    "hybrid",
)
"""The strategies that are compared unless the user names others, simple ones first."""


@dataclass(frozen=True)
class Row:
    """The plan of one strategy for a number of devices, or the reason why there is none."""

    strategy: str
    devices: int
    solved: Solved | None
    refusal: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the figures of `csdf-edge partition solve`, or the reason under `error`."""
        beside = {"devices_count": self.devices}
        if self.solved is None:
            return {"strategy": self.strategy, **beside, "error": self.refusal}
        return {**self.solved.as_json(), **beside}


@dataclass(frozen=True)
class StrategyComparison:
    """All rows, by number of devices and then by strategy; `page` has the plots."""

    network: str
    objective: Objective
    rows: tuple[Row, ...]
    page: Path | None

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies, in the user's order."""
        return tuple(dict.fromkeys(row.strategy for row in self.rows))

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of devices, ascending."""
        return tuple(dict.fromkeys(row.devices for row in self.rows))

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data."""
        return {
            "network": self.network,
            "objective": self.objective,
            "rows": [row.as_json() for row in self.rows],
            "page": None if self.page is None else str(self.page),
        }

    def print(self) -> None:
        """Print a table on standard output."""
        lines = [] if self.page is None else [f"plots: {self.page}"]
        print_table(strategies_table(self), lines)


def perform(options: CompareOptions) -> StrategyComparison:
    """Divide the network by every strategy; raises `BadInputError` for options that are wrong."""
    counts = parse_counts(options.devices)
    within = parse_within(options.within, options.objective)
    strategies = _chosen(options.strategies)
    if options.html is not None:
        _check_page(options.html)
    rows = []
    with open_progress() as progress:
        progress.say(f"reading {options.model}")
        model = read_network(options.model)
        for count in counts:
            for strategy in strategies:
                problem = equal_problem(
                    model, count, options, options.objective, options.seed, within
                )
                asked = Search(model, problem, find_strategy(strategy))
                try:
                    rows.append(Row(strategy, count, solve(asked, progress)))
                except BadInputError as refusal:
                    rows.append(Row(strategy, count, None, str(refusal)))
                progress.say(f"{count} devices, {strategy}: {_in_short(rows[-1])}")
    return StrategyComparison(model.network.name, options.objective, tuple(rows), options.html)


def _check_page(path: Path) -> None:
    """Raise `BadInputError` if the page cannot be written, before a long search."""
    if path.is_dir():
        raise BadInputError(f"--html {str(path)!r}: is a folder; name a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInputError(f"--html {str(path)!r}: cannot be written; name another file")


def parse_counts(text: str) -> tuple[int, ...]:
    """Parse `2..10`, `4` or `2,4,8` and return the numbers, ascending; raises `BadInputError`."""
    counts: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise BadInputError(f"--devices {text!r}: write numbers of devices as 2..10 or 2,4,8")
        counts.update(range(int(first), int(last or first) + 1))
    if not counts or min(counts) < 1 or max(counts) > MOST_DEVICES:
        raise BadInputError(f"--devices {text!r}: name numbers from 1 to {MOST_DEVICES}, ascending")
    return tuple(sorted(counts))


def _chosen(text: str | None) -> Sequence[str]:
    if text is None:
        return USUAL
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        check_strategy_option("--strategies", name)
    if not names:
        raise BadInputError("--strategies: names no strategy; name at least one")
    return tuple(dict.fromkeys(names))


def _in_short(row: Row) -> str:
    if row.solved is None:
        return row.refusal
    solved = row.solved
    return f"{solved.plan.period_s * 1e3:.1f} ms per frame, found in {solved.seconds:.1f} s"


def strategies_table(comparison: StrategyComparison) -> RowTable:
    """Return a row for each strategy and number of devices."""
    heads = ("devices", "strategy", "period", "bound", "saving", "by Eq. 2", "traffic", "energy",
             "power", "proved", "search")  # fmt: skip
    title = f"{comparison.network}, objective {comparison.objective}"
    rows = [(str(row.devices), row.strategy, *_figures(row)) for row in comparison.rows]
    return RowTable(heads, rows, ("strategy",), title, in_groups=True)


def _figures(row: Row) -> tuple[str, ...]:
    solved = row.solved
    if solved is None:
        return ("no plan",)
    return (
        f"{solved.plan.period_s * 1e3:.1f} ms",
        f"{solved.speedup_bound:.2f}×",
        f"{solved.memory_saving_percent:.1f} %",
        f"{solved.memory_eq2_saving_percent:.2f} %",
        megabytes(solved.plan.bytes_per_frame),
        joules(energy_j(solved.plan)),
        f"{power_w(solved.plan):.1f} W",
        "yes" if solved.plan.optimal else "",
        f"{solved.seconds:.1f} s",
    )
