"""A sweep as one HTML page that needs nothing else: plots as SVG inside it.

The history of values, what mattered (PED-ANOVA), and the value against each parameter.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from ga.sweep.study import Result
from launcher.commands.figure_svg import as_svg
from launcher.commands.page_file import write_text

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;"
    "border-bottom:1px solid #ddd}svg{max-width:100%;height:auto}"
)

_WIDE = 3
"""So many plots stand side by side."""

_DECADES = 30
"""A parameter whose largest value is this many times its smallest is drawn on a logarithmic
axis."""


def write_page(result: Result, path: Path) -> None:
    """Write the page of a study with a finished trial; raises `BadInputError` if it cannot be."""
    title = html.escape(f"sweep: {result.study}")
    plots = "\n".join(as_svg(figure) for figure in _figures(result))
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
        f"<p>{len(result.trials)} trials; smaller values are better.</p>\n"
        f"{plots}\n{_table(result)}\n</body></html>\n"
    )
    write_text(path, text, str(path))


def _figures(result: Result) -> Iterator[Figure]:
    yield _history(result)
    if result.importance:
        yield _importance(result)
    yield _slices(result)


def _history(result: Result) -> Figure:
    """Every value, and the best so far; trials that were given up stand on the lower edge."""
    drawing = Figure(figsize=(9, 4), layout="constrained")
    axes = drawing.subplots()
    done = [(trial.number, trial.value) for trial in result.trials if trial.value is not None]
    numbers, values = [number for number, _ in done], [value for _, value in done]
    axes.scatter(numbers, values, label="finished")
    axes.step(numbers, list(itertools.accumulate(values, min)), where="post", label="best so far")
    if result.usual is not None:
        axes.axhline(result.usual, color="black", linestyle=":", label="usual parameters")
    given_up = [trial.number for trial in result.trials if trial.state == "pruned"]
    if given_up:
        edge = axes.get_xaxis_transform()
        axes.plot(given_up, [0.01] * len(given_up), "x", color="gray", transform=edge,
                  label="given up")  # fmt: skip
    axes.set(title="history", xlabel="trial", ylabel=result.value_name)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    axes.grid(alpha=0.3)
    return drawing


def _importance(result: Result) -> Figure:
    drawing = Figure(figsize=(9, 0.6 + 0.4 * len(result.importance)), layout="constrained")
    axes = drawing.subplots()
    names = list(result.importance)[::-1]
    axes.barh(names, [100 * result.importance[name] for name in names])
    axes.set(title="what mattered, % (PED-ANOVA)")
    return drawing


def _slices(result: Result) -> Figure:
    """The value against each parameter, over finished trials."""
    done = result.ranked
    names = list(done[0].parameters)
    rows = -(-len(names) // _WIDE)
    drawing = Figure(figsize=(9, 2.6 * rows), layout="constrained")
    places = drawing.subplots(rows, _WIDE, squeeze=False, sharey=True).ravel()
    for axes, name in itertools.zip_longest(places, names):
        if name is None:
            axes.set_axis_off()
            continue
        given = [trial.parameters[name] for trial in done]
        axes.scatter(given, [trial.value for trial in done], s=12)
        if min(given) > 0 and max(given) > _DECADES * min(given):
            axes.set_xscale("log")
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    for row in range(rows):
        places[row * _WIDE].set_ylabel(result.value_name)
    return drawing


def _table(result: Result) -> str:
    names = list(result.ranked[0].parameters)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (
        "trial", result.value_name, "seconds", *names))  # fmt: skip
    body = "\n".join(
        "<tr>"
        + f"<td>{trial.number}</td><td>{trial.value:.6g}</td><td>{trial.seconds:.1f}</td>"
        + "".join(f"<td>{trial.parameters[name]:.4g}</td>" for name in names)
        + "</tr>"
        for trial in result.ranked
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
