"""A comparison as one HTML page that needs nothing else: plots as SVG inside it.

Saving and speed-up against the number of devices with their limits drawn in (1 − 1/n and n), the
compromises between period and weights, and for the most devices a bar per device.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from launcher.commands.compare import Row, StrategyComparison
from launcher.commands.figure_svg import as_svg
from launcher.commands.page_file import write_text

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}td:nth-child(2),th:nth-child(2){text-align:left}"
    "svg{max-width:100%;height:auto}"
)


def write_page(comparison: StrategyComparison, path: Path) -> None:
    """Write the page; raises `BadInputError` if `path` cannot be written."""
    title = html.escape(f"{comparison.network}: ways to divide it")
    plots = "\n".join(as_svg(figure) for figure in _figures(comparison))
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f"<p>Equal devices, objective {html.escape(comparison.objective)}; times are predicted. "
        "The bound is the speed-up over one device that the busiest device's layers allow.</p>\n"
        f"{plots}\n{_table(comparison)}\n</body></html>\n"
    )
    write_text(path, text, f"--html {str(path)!r}")


def _figures(comparison: StrategyComparison) -> Iterator[Figure]:
    counts = comparison.counts
    if len(counts) > 1:
        yield _lines(comparison, "speed-up bound", "speedup_bound", [float(n) for n in counts])
        limits = [100 * (1 - 1 / n) for n in counts]
        title = "memory saving by Eq. 2, %"
        yield _lines(comparison, title, "memory_eq2_saving_percent", limits)
    yield _compromises(comparison)
    yield _bars(comparison)


def _solved(comparison: StrategyComparison, **wanted: Any) -> list[Row]:
    return [
        row
        for row in comparison.rows
        if row.solved is not None
        and all(getattr(row, key) == value for key, value in wanted.items())
    ]


def _lines(comparison: StrategyComparison, title: str, figure: str, limits: list[float]) -> Figure:
    drawing = Figure(figsize=(9, 4.5), layout="constrained")
    axes = drawing.subplots()
    axes.plot(comparison.counts, limits, color="black", linestyle=":", label="limit")
    for strategy in comparison.strategies:
        rows = _solved(comparison, strategy=strategy)
        values = [getattr(row.solved, figure) for row in rows]
        axes.plot([row.devices for row in rows], values, marker="o", label=strategy)
    axes.set(title=title, xlabel="devices", xticks=comparison.counts)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return drawing


def _compromises(comparison: StrategyComparison) -> Figure:
    """Period against the heaviest device's weights, for the most devices, with all fronts."""
    most = comparison.counts[-1]
    drawing = Figure(figsize=(9, 4.5), layout="constrained")
    axes = drawing.subplots()
    for row in _solved(comparison, devices=most):
        assert row.solved is not None  # noqa: S101 - `_solved` has chosen such rows
        heaviest = max(share.weight_bytes for share in row.solved.devices)
        axes.scatter(row.solved.plan.period_s * 1e3, heaviest / 1e6, label=row.strategy, zorder=2)
        front = row.solved.front if comparison.objective != "memory" else ()
        periods = [candidate.period_s * 1e3 for candidate in front]
        weights = [candidate.memory_bytes / 1e6 for candidate in front]
        axes.scatter(periods, weights, s=6, color="gray", zorder=1)
    axes.set(
        title=f"{most} devices: period and weights (gray: what searches had to choose from)",
        xlabel="ms per frame",
        ylabel="MB of weights on the heaviest device",
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return drawing


def _bars(comparison: StrategyComparison) -> Figure:
    """Compute time and memory of every device, a row of bars per strategy, for the most devices."""
    rows = _solved(comparison, devices=comparison.counts[-1])
    drawing = Figure(figsize=(9, 1 + 1.1 * max(1, len(rows))), layout="constrained")
    table = drawing.subplots(max(1, len(rows)), 2, squeeze=False, sharex="col", sharey="col")
    for (left, right), row in zip(table, rows, strict=False):
        assert row.solved is not None  # noqa: S101 - `_solved` has chosen such rows
        shares = row.solved.devices
        places = range(1, len(shares) + 1)
        left.bar(places, [share.compute_s * 1e3 for share in shares])
        right.bar(places, [share.memory_bytes / 1e6 for share in shares], color="tab:orange")
        right.set_xticks(places)
        left.set_xticks(places)
        left.set_ylabel(row.strategy, rotation=0, ha="right", fontsize="small")
    table[0][0].set_title("ms per frame, by device", fontsize="medium")
    table[0][1].set_title("MB, by device", fontsize="medium")
    return drawing


def _table(comparison: StrategyComparison) -> str:
    columns = ("devices", "strategy", "ms per frame", "bound", "memory saving, %", "by Eq. 2, %",
               "MB per frame", "search, s")  # fmt: skip
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "\n".join(_table_row(row) for row in comparison.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _table_row(row: Row) -> str:
    if row.solved is None:
        why = html.escape(row.refusal)
        return f"<tr><td>{row.devices}</td><td>{row.strategy}</td><td colspan=6>{why}</td></tr>"
    solved = row.solved
    cells = (
        f"{solved.plan.period_s * 1e3:.2f}",
        f"{solved.speedup_bound:.2f}",
        f"{solved.memory_saving_percent:.1f}",
        f"{solved.memory_eq2_saving_percent:.2f}",
        f"{solved.plan.bytes_per_frame / 1e6:.2f}",
        f"{solved.seconds:.1f}",
    )
    shown = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr><td>{row.devices}</td><td>{html.escape(row.strategy)}</td>{shown}</tr>"
