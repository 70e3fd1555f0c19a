"""Plots the measured curves beside the paper's: speed-up and memory saved, for each network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.table3.paper import PAPER
from benchmarks.table3.summary import Summary
from launcher.commands.pages import as_svg

PAPER_STYLE: dict[str, Any] = {
    "color": "black",
    "linestyle": "--",
    "marker": "x",
    "label": "Tang & Stefanov 2021",
}
LIMIT_STYLE: dict[str, Any] = {"color": "0.7", "linestyle": ":", "label": "n × and 1 − 1/n"}


def picture(found: Sequence[Summary]) -> str:
    """An SVG: a row of two panels per network."""
    networks = list(dict.fromkeys(one.cell.network for one in found))
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 9}):
        drawing = Figure(figsize=(10, 3.6 * len(networks)), layout="constrained")
        panels = drawing.subplots(len(networks), 2, squeeze=False)
        for network, (speed, memory) in zip(networks, panels, strict=True):
            own = [one for one in found if one.cell.network == network and one.cell.devices > 1]
            counts = sorted({one.cell.devices for one in own} | set(PAPER.get(network, {})))
            _published(network, counts, speed, memory)
            for how in dict.fromkeys(one.cell.how for one in own):
                _curve(how, [one for one in own if one.cell.how == how], speed, memory)
            speed.set(title=network, xlabel="boards", ylabel="speed-up")
            memory.set(title=network, xlabel="boards", ylabel="memory saved on the fullest, %")
            for panel in (speed, memory):
                panel.grid(alpha=0.3)
                panel.legend(fontsize=7)
        return as_svg(drawing)


def _published(network: str, counts: Sequence[int], speed: Axes, memory: Axes) -> None:
    speed.plot(counts, counts, **LIMIT_STYLE)
    memory.plot(counts, [100 * (1 - 1 / n) for n in counts], **LIMIT_STYLE)
    paper = PAPER.get(network, {})
    if paper:
        speed.plot(list(paper), [one.speedup for one in paper.values()], **PAPER_STYLE)
        memory.plot(list(paper), [one.saving_percent for one in paper.values()], **PAPER_STYLE)


def _curve(how: str, own: Sequence[Summary], speed: Axes, memory: Axes) -> None:
    counts = [one.cell.devices for one in own]
    medians = [one.speedup for one in own]
    below = [(one.efficiency.median - one.efficiency.low) * one.cell.devices for one in own]
    above = [(one.efficiency.high - one.efficiency.median) * one.cell.devices for one in own]
    speed.errorbar(counts, medians, [below, above], marker="o", markersize=3, label=how)
    by_eq2 = [(one.cell.devices, one.eq2_saving_percent) for one in own if one.eq2_saving_percent]
    (line,) = memory.plot(
        [n for n, _ in by_eq2], [s for _, s in by_eq2], linestyle="--", label=f"{how}, Eq. 2"
    )
    measured = [(one.cell.devices, one.saving_percent) for one in own if one.saving_percent]
    memory.errorbar(
        [n for n, _ in measured],
        [saving.median for _, saving in measured],
        [
            [saving.median - saving.low for _, saving in measured],
            [saving.high - saving.median for _, saving in measured],
        ],
        marker="o",
        markersize=3,
        color=line.get_color(),
        label=f"{how}, measured",
    )
