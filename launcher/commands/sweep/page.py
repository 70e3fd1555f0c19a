"""Writes the page of `ga sweep`.

It shows how the study's values converge, of two objectives also the front and its hypervolume, the
importance of parameters (PED-ANOVA), and the cost against each parameter.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from ga.fronts import hypervolume
from ga.sweep.study import Result, points
from launcher.commands.pages import as_svg, finish
from launcher.commands.sweep.report import trials_table
from launcher.files import write_text
from launcher.results.tables import picture_page

_PLOTS_PER_ROW = 3

_LOGARITHMIC_FROM = 30
"""A parameter has a logarithmic axis if its largest value exceeds its smallest by this factor."""


def write_sweep(result: Result, path: Path) -> None:
    """Write the page of a study with a finished trial; raises `BadInputError`."""
    introduction = (
        f"{len(result.trials)} trials; values are relative to those of the usual parameters, "
        "and smaller ones are better."
    )
    pictures = map(as_svg, _sweep_figures(result))
    title = f"sweep: {result.study}"
    text = picture_page(title, [introduction], pictures, trials_table(result, result.ranked))
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
    finish(axes)
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
        finish(axes)
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
