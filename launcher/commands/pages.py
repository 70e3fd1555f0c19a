"""Writes the page of `partition compare`, and pictures of a front and of a search's generations.

A page is one file, with its plots as SVG elements, and is the same for the same data. That of a
comparison shows memory saving and speed-up against the number of devices, with their limits
(1 − 1/n and n), the compromises between period and weights, and each device's share.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from launcher.commands.compare import Row, StrategyComparison, strategies_table
from launcher.commands.front import PlanFront
from launcher.files import write_text
from launcher.results.tables import picture_page
from partition.alone import fullest_bytes

mpl.rcdefaults()  # it has read a `matplotlibrc` of the current folder, which may be a stranger's


def as_svg(drawing: Figure) -> str:
    """Return a figure as an `<svg>` element, without a date and random identifiers."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "csdf-edge"}):
        drawing.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def finish(axes: Any) -> None:
    """Add a legend at the right, and a grid."""
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(alpha=0.3)


def write_convergence(records: Sequence[Mapping[str, float]], path: Path) -> None:
    """Write a picture of the generations of a genetic search, a plot of each quantity; raises
    `BadInputError`."""
    shown = [name for name in records[0] if name not in ("generation", "evaluations")]
    drawing = Figure(figsize=(4 * len(shown), 3.2), layout="constrained")
    panels = drawing.subplots(1, len(shown), squeeze=False)[0]
    generations = [record["generation"] for record in records]
    for name, panel in zip(shown, panels, strict=True):
        panel.plot(generations, [record[name] for record in records])
        panel.set(title=name.replace("_", " "), xlabel="generation")
        panel.grid(alpha=0.3)
    write_text(path, as_svg(drawing), f"--convergence {str(path)!r}")


def write_front(front: PlanFront, path: Path) -> None:
    """Write a front's picture as SVG; raises `BadInputError` if `path` cannot be written."""
    write_text(path, as_svg(front_figure(front)) + "\n", str(path))


def front_figure(front: PlanFront) -> Figure:
    """Plot the fullest device's memory against frames per second, with a name at each point."""
    drawing = Figure(figsize=(9, 5), layout="constrained")
    axes = drawing.subplots()
    rates = [1 / period_s for period_s, _ in front.dominated]
    memory = [size / 1e6 for _, size in front.dominated]
    axes.scatter(rates, memory, s=6, color="gray", label="other plans that were priced", zorder=1)
    rates = [1 / point.plan.frame_s for point in front.points]
    memory = [point.memory_bytes / 1e6 for point in front.points]
    axes.plot(rates, memory, marker="o", label="the front", zorder=2)
    for point, rate, size in zip(front.points, rates, memory, strict=True):
        axes.annotate(
            point.name, (rate, size), (4, 4), textcoords="offset points", fontsize="small"
        )
    chosen = front.chosen
    axes.plot(
        [1 / chosen.plan.frame_s], [chosen.memory_bytes / 1e6], "o", markersize=14,
        markerfacecolor="none", color="tab:red", zorder=3,
        label=f"objective both, within {front.within:.0%}",
    )  # fmt: skip
    alone = front.alone
    axes.plot([1 / alone.frame_s], [fullest_bytes(alone) / 1e6], "s", color="black",
              label="one device alone", zorder=2)  # fmt: skip
    count = len(alone.devices)
    axes.set(
        title=f"{alone.network} on {count} devices: plans to choose from",
        xlabel="frames per second, predicted",
        ylabel="MB on the fullest device, predicted",
        ylim=(0, None),
        xlim=(0, None),
    )
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4)
    return drawing


def write_comparison(comparison: StrategyComparison, path: Path) -> None:
    """Write the page of a comparison; raises `BadInputError` if `path` cannot be written."""
    introduction = (
        f"Equal devices, objective {comparison.objective}; times are predicted. "
        "The bound is the speed-up over one device that the busiest device's layers allow."
    )
    refusals = (
        f"{row.strategy} has no plan for {row.devices} devices: {row.refusal}"
        for row in comparison.rows
        if row.solved is None
    )
    text = picture_page(
        f"{comparison.network}: ways to divide it",
        [introduction, *refusals],
        map(as_svg, _comparison_figures(comparison)),
        strategies_table(comparison),
    )
    write_text(path, text, f"--html {str(path)!r}")


def _comparison_figures(comparison: StrategyComparison) -> Iterator[Figure]:
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
    finish(axes)
    return drawing


def _compromises(comparison: StrategyComparison) -> Figure:
    """Plot period against the largest weights of a device, with all Pareto fronts."""
    most = comparison.counts[-1]
    drawing = Figure(figsize=(9, 4.5), layout="constrained")
    axes = drawing.subplots()
    for row in _solved(comparison, devices=most):
        assert row.solved is not None  # noqa: S101 - `_solved` has chosen such rows
        heaviest = max(share.weight_bytes for share in row.solved.devices)
        axes.scatter(row.solved.plan.period_s * 1e3, heaviest / 1e6, label=row.strategy, zorder=2)
        front = row.solved.found.solution.front if comparison.objective != "memory" else ()
        periods = [candidate.period_s * 1e3 for candidate in front]
        weights = [candidate.memory_bytes / 1e6 for candidate in front]
        axes.scatter(periods, weights, s=6, color="gray", zorder=1)
    axes.set(
        title=f"{most} devices: period and weights (gray: Pareto fronts of the searches)",
        xlabel="ms per frame",
        ylabel="MB of weights on the heaviest device",
    )
    finish(axes)
    return drawing


def _bars(comparison: StrategyComparison) -> Figure:
    """Plot the compute time and memory of every device, with a row per strategy."""
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
