"""Draws when phases fire: one period of a plan, or some firings of a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from launcher.quantities import seconds
from launcher.view.charts import COLOURS, nice
from launcher.view.elements import SVG, PageElement, element
from partition.plan import Plan

PERIODS = 3
"""How many periods of a trace are drawn."""

MOST_BOXES = 1000
"""The most firings that are drawn."""

_LEFT, _WIDTH, _ROW, _BOX = 120, 900, 30, 22
_LETTER = 6.6


@dataclass(frozen=True, slots=True)
class DrawnFiring:
    """A phase's firing on its node, in seconds; `text` stands in its box."""

    node: str
    phase: str
    text: str
    begins_s: float
    ends_s: float


def static_order(plan: Plan, seconds_of: Mapping[str, float]) -> list[DrawnFiring]:
    """Return one period of a plan: each node fires its phases once, the one of the oldest frame
    first, which is the one with the largest skew.

    `seconds_of` has measured seconds per firing by phase; without, they are those of the plan.
    In period k a phase of skew σ works on frame k − σ.
    """
    firings = []
    ordered = sorted(plan.phases, key=lambda phase: (phase.device, -phase.skew, phase.index))
    for node, phases in groupby(ordered, key=lambda phase: phase.device):
        at_s = 0.0
        for phase in phases:
            ends_s = at_s + seconds_of.get(phase.name, phase.predicted_s)
            frame = f"k − {phase.skew}" if phase.skew else "k"
            firings.append(DrawnFiring(node, phase.name, frame, at_s, ends_s))
            at_s = ends_s
    return firings


def traced_firings(trace: Mapping[str, Any], period_s: float) -> list[DrawnFiring]:
    """Return the firings of `PERIODS` periods in the middle of a trace
    (`launcher.run.tracing.chrome_trace`)."""
    names = {
        event["pid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event.get("ph") == "M" and event["name"] == "process_name"
    }
    fired = [event for event in trace["traceEvents"] if event.get("cat") == "firing"]
    if not fired:
        return []
    middle_us = sorted(event["ts"] for event in fired)[len(fired) // 2]
    until_us = middle_us + PERIODS * period_s * 1e6
    return [
        DrawnFiring(
            names[event["pid"]],
            event["args"]["phase"],
            str(event["args"]["frame"]),
            (event["ts"] - middle_us) / 1e6,
            (event["ts"] + event["dur"] - middle_us) / 1e6,
        )
        for event in fired
        if middle_us <= event["ts"] < until_us
    ][:MOST_BOXES]


def gantt(firings: Sequence[DrawnFiring], period_s: float, title: str) -> PageElement:
    """Draw firings, a row for each node; a line marks every period."""
    nodes = list(dict.fromkeys(firing.node for firing in firings))
    phases = list(dict.fromkeys(firing.phase for firing in firings))
    until_s = max([period_s, *(firing.ends_s for firing in firings)])
    bottom = 10 + _ROW * len(nodes)

    def x(at_s: float) -> float:
        return _LEFT + at_s / until_s * (_WIDTH - _LEFT - 10) if until_s > 0 else float(_LEFT)

    def box(firing: DrawnFiring) -> PageElement:
        y = 10 + _ROW * nodes.index(firing.node)
        colour = phases.index(firing.phase) % COLOURS
        return _box(firing, x(firing.begins_s), x(firing.ends_s), y, colour)

    return element(
        "svg",
        element("title", title),
        *_grid(until_s, x, bottom),
        *(element("text", _short(name), x=4, y=25 + _ROW * row) for row, name in enumerate(nodes)),
        *map(box, firings),
        *_ends_of_periods(period_s, until_s, x, bottom),
        xmlns=SVG,
        viewBox=f"0 0 {_WIDTH} {bottom + 24}",
        class_="gantt",
        role="img",
    )  # fmt: skip


def _short(name: str) -> str:
    return name if len(name) < 17 else f"{name[:16]}…"


def _box(firing: DrawnFiring, begins: float, ends: float, y: float, colour: int) -> PageElement:
    took = seconds(firing.ends_s - firing.begins_s)
    width = max(1.0, ends - begins)
    labels = (f"{firing.phase}: {firing.text}", firing.text, "")
    label = next(label for label in labels if len(label) * _LETTER <= width or not label)
    return element(
        "g",
        element("title", f"{firing.phase} on {firing.node}, frame {firing.text}: {took}"),
        element("rect", x=begins, y=y, width=width, height=_BOX, rx=3, class_=f"b{colour}"),
        element("text", label, x=begins + width / 2, y=y + 15, class_="middle inside"),
    )


def _grid(until_s: float, x: Any, bottom: float) -> Iterable[PageElement]:
    step_s = nice(until_s / 6) if until_s > 0 else 1.0
    for number in range(int(until_s / step_s) + 1):
        at = x(number * step_s)
        text = seconds(number * step_s) if number else "0"
        yield element("line", x1=at, x2=at, y1=4, y2=bottom, class_="grid")
        yield element("text", text, x=at, y=bottom + 16, class_="faint middle")


def _ends_of_periods(
    period_s: float, until_s: float, x: Any, bottom: float
) -> Iterable[PageElement]:
    if period_s <= 0:
        return
    for number in range(1, min(20, int(until_s / period_s * 1.000001)) + 1):
        at = x(number * period_s)
        yield element("line", x1=at, x2=at, y1=2, y2=bottom + 2, class_="period")
