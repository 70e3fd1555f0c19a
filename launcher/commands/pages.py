"""Writes the results of `partition compare` and of `ga sweep` as HTML pages with plots, and the
pictures of a front and of the generations of a search.

A page is one file, with its plots as SVG elements, and is the same for the same data. That of a
comparison shows memory saving and speed-up against the number of devices, with their limits
(1 − 1/n and n), the compromises between period and weights, and each device's share. That of a
sweep shows how its values converge, of two objectives also the front and its hypervolume, the
importance of parameters (PED-ANOVA), and the cost against each parameter.
"""

from __future__ import annotations

import html
import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from ga.sweep.fronts import hypervolume
from ga.sweep.study import Result, points
from launcher.commands.compare import Row, StrategyComparison
from launcher.commands.front import PlanFront
from launcher.files import write_text
from partition.alone import fullest_bytes

mpl.rcdefaults()  # it has read a `matplotlibrc` of the current folder, which may be a stranger's


def as_svg(drawing: Figure) -> str:
    """Return a figure as an `<svg>` element, without a date and random identifiers."""
    stream = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "csdf-edge"}):
        drawing.savefig(stream, format="svg", metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}td.text,th.text{text-align:left}"
    "svg{max-width:100%;height:auto}"
)


def _page(title: str, introduction: str, figures: Iterable[Figure], table: str) -> str:
    """Return a page; `title` and `introduction` are plain text."""
    shown, plots = html.escape(title), "\n".join(map(as_svg, figures))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{shown}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>{shown}</h1>\n"
        f"<p>{html.escape(introduction)}</p>\n{plots}\n{table}\n</body></html>\n"
    )


_PLOTS_PER_ROW = 3

_LOGARITHMIC_FROM = 30
"""A parameter has a logarithmic axis if its largest value exceeds its smallest by this factor."""


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


def write_sweep(result: Result, path: Path) -> None:
    """Write the page of a study with a finished trial; raises `BadInputError`."""
    introduction = (
        f"{len(result.trials)} trials; values are relative to those of the usual parameters, "
        "and smaller ones are better."
    )
    text = _page(
        f"sweep: {result.study}", introduction, _sweep_figures(result), _sweep_table(result)
    )
    write_text(path, text, str(path))


def _sweep_figures(result: Result) -> Iterator[Figure]:
    if result.front:
        yield _sweep_front(result)
    yield _convergence(result)
    if result.importance:
        yield _importance(result)
    yield _slices(result)


def _sweep_front(result: Result) -> Figure:
    """Plot the trials over both objectives, with those on the front joined."""
    drawing = Figure(figsize=(9, 5), layout="constrained")
    axes = drawing.subplots()
    for trials, style in ((result.finished, "."), (result.front, "o-")):
        periods, memory = zip(*map(points, trials), strict=True)
        label = "the front" if trials is result.front else "finished trials"
        axes.plot(periods, memory, style, label=label)
    axes.plot([1], [1], "s", color="black", label="usual parameters")
    axes.set(
        title="period and memory", xlabel="period ÷ usual", ylabel="memory ÷ usual",
    )  # fmt: skip
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(alpha=0.3)
    return drawing


def _convergence(result: Result) -> Figure:
    """Plot each objective's values and the least so far, and of two the hypervolume so far.

    Pruned trials are marked on the lower edge.
    """
    names = result.value_names
    rows = len(names) + (len(names) > 1)
    drawing = Figure(figsize=(9, 3.5 * rows), layout="constrained")
    places = drawing.subplots(rows, 1, squeeze=False, sharex=True).ravel()
    numbers = [trial.number for trial in result.finished]
    for axes, name, values in zip(
        places, names, zip(*(trial.values for trial in result.finished), strict=True), strict=False
    ):
        axes.scatter(numbers, values, s=12, label="finished")
        least = list(itertools.accumulate(values, min))
        axes.step(numbers, least, where="post", label="least so far")
        axes.axhline(1, color="black", linestyle=":", label="usual parameters")
        given_up = [trial.number for trial in result.trials if trial.state == "pruned"]
        if given_up:
            edge = axes.get_xaxis_transform()
            axes.plot(given_up, [0.01] * len(given_up), "x", color="gray", transform=edge,
                      label="pruned")  # fmt: skip
        axes.set(ylabel=f"{name} ÷ usual")
    if len(names) > 1:
        every = [points(trial) for trial in result.finished]
        areas = [hypervolume(every[: count + 1]) for count in range(len(every))]
        places[-1].step(numbers, areas, where="post", label="hypervolume so far")
        places[-1].set(ylabel="hypervolume")
    for axes in places:
        axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        axes.grid(alpha=0.3)
    places[0].set(title="convergence")
    places[-1].set(xlabel="trial")
    return drawing


def _importance(result: Result) -> Figure:
    drawing = Figure(figsize=(9, 0.6 + 0.4 * len(result.importance)), layout="constrained")
    axes = drawing.subplots()
    names = list(result.importance)[::-1]
    axes.barh(names, [100 * result.importance[name] for name in names])
    axes.set(title="importance, % (PED-ANOVA)")
    return drawing


def _slices(result: Result) -> Figure:
    """Plot the cost against each parameter, over finished trials."""
    done = result.ranked
    names = list(done[0].parameters)
    rows = -(-len(names) // _PLOTS_PER_ROW)
    drawing = Figure(figsize=(9, 2.6 * rows), layout="constrained")
    places = drawing.subplots(rows, _PLOTS_PER_ROW, squeeze=False, sharey=True).ravel()
    for axes, name in itertools.zip_longest(places, names):
        if name is None:
            axes.set_axis_off()
            continue
        given = [trial.parameters[name] for trial in done]
        axes.scatter(given, [trial.cost for trial in done], s=12)
        if min(given) > 0 and max(given) > _LOGARITHMIC_FROM * min(given):
            axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    for row in range(rows):
        places[row * _PLOTS_PER_ROW].set_ylabel("cost ÷ usual")
    return drawing


def _sweep_table(result: Result) -> str:
    names = list(result.ranked[0].parameters)
    columns = ("trial", *(f"{name} ÷ usual" for name in result.value_names), "seconds", *names)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "\n".join(
        f"<tr><td>{trial.number}</td>"
        + "".join(f"<td>{value:.6g}</td>" for value in trial.values)
        + f"<td>{trial.seconds:.1f}</td>"
        + "".join(f"<td>{trial.parameters[name]:.4g}</td>" for name in names)
        + "</tr>"
        for trial in result.ranked
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


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
    text = _page(
        f"{comparison.network}: ways to divide it",
        f"Equal devices, objective {comparison.objective}; times are predicted. "
        "The bound is the speed-up over one device that the busiest device's layers allow.",
        _comparison_figures(comparison),
        _comparison_table(comparison),
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
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
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
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
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


def _comparison_table(comparison: StrategyComparison) -> str:
    columns = ("devices", "strategy", "ms per frame", "bound", "memory saving, %", "by Eq. 2, %",
               "MB per frame", "search, s")  # fmt: skip
    head = "".join(
        f'<th class="text">{column}</th>' if column == "strategy" else f"<th>{column}</th>"
        for column in columns
    )
    body = "\n".join(_table_row(row) for row in comparison.rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _table_row(row: Row) -> str:
    if row.solved is None:
        why = html.escape(row.refusal)
        start = f'<tr><td>{row.devices}</td><td class="text">{html.escape(row.strategy)}</td>'
        return f'{start}<td class="text" colspan="6">{why}</td></tr>'
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
    name = f'<td class="text">{html.escape(row.strategy)}</td>'
    return f"<tr><td>{row.devices}</td>{name}{shown}</tr>"
