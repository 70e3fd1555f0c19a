"""Draws figures over time as SVG.

Colours come from the style of the page, which has a light and a dark one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from launcher.view.elements import SVG, PageElement, element

COLOURS = 8
"""The style has this many colours of lines, which are taken in turn."""

_WIDTH, _HEIGHT = 460, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 10, 26, 20
_LETTER = 6.4
"""About the width of a letter."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: seconds and values; nothing is drawn where a value is None."""

    name: str
    points: Sequence[tuple[float, float | None]]
    is_dashed: bool = False


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    times: tuple[str, str],
    written: Callable[[float], str],
) -> PageElement:
    """Draw lines over time, from 0 to the largest value.

    `times` are the words at both ends of the time, `written` formats a value.
    """
    values = [value for line in lines for _, value in line.points if value is not None]
    at = [second for line in lines for second, _ in line.points]
    first_s, last_s = (min(at), max(at)) if at else (0.0, 0.0)
    most = nice(max(values, default=0.0))

    def x(second: float) -> float:
        share = (second - first_s) / (last_s - first_s) if last_s > first_s else 1.0
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value / most * (_HEIGHT - _TOP - _BOTTOM)

    empty = {"x": _WIDTH // 2, "y": _HEIGHT // 2, "class_": "faint middle"}
    return element(
        "svg",
        element("title", _summary(title, lines, written)),
        *(_axes(most, y, times, written) if values else ()),
        *(
            element("path", d=_path(line, x, y), class_=_kind(i, line))
            for i, line in enumerate(lines)
        ),
        *_legend(title, lines),
        None if values else element("text", "nothing measured yet", **empty),
        xmlns=SVG,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="chart",
        role="img",
    )


def _kind(index: int, line: Line) -> str:
    return f"line{' dashed' if line.is_dashed else ''} c{index % COLOURS}"


def nice(value: float) -> float:
    """Return the least of 1, 2, 2.5 or 5 times a power of ten that is no less than `value`."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * (1 - 1e-9))


def _axes(
    most: float,
    y: Callable[[float], float],
    times: tuple[str, str],
    written: Callable[[float], str],
) -> list[PageElement]:
    parts = []
    for share in (0.0, 0.5, 1.0):
        height = y(share * most)
        parts += [
            element("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=height, y2=height, class_="grid"),
            element(
                "text",
                written(share * most) if share else "0",
                x=_LEFT - 6,
                y=height + 4,
                class_="faint end",
            ),
        ]
    for x, text, anchor in ((_LEFT, times[0], ""), (_WIDTH - _RIGHT, times[1], " end")):
        parts.append(element("text", text, x=x, y=_HEIGHT - 5, class_=f"faint{anchor}"))
    return parts


def _path(line: Line, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    """Return the path of a line, a new part after every gap."""
    parts: list[str] = []
    for is_gap, points in groupby(line.points, key=lambda point: point[1] is None):
        if not is_gap:
            places = [f"{x(at):.1f},{y(value or 0.0):.1f}" for at, value in points]
            # A line of no length has round ends, so that a single point can be seen.
            parts.append("M" + " L".join(places if len(places) > 1 else places * 2))
    return " ".join(parts) or "M0,0"


def _legend(title: str, lines: Sequence[Line]) -> list[PageElement]:
    parts = [element("text", title, x=_LEFT, y=14, class_="strong")]
    left = _LEFT + 16 + len(title) * (_LETTER + 0.8)
    for index, line in enumerate(lines):
        name = line.name if len(line.name) <= 14 else f"{line.name[:13]}…"
        if left + 20 + len(name) * _LETTER > _WIDTH:
            parts.append(element("text", "…", x=left, y=14, class_="faint"))
            break
        parts += [
            element("path", d=f"M{left:.1f},10 h14", class_=_kind(index, line)),
            element("text", name, x=left + 18, y=14),
        ]
        left += 30 + len(name) * _LETTER
    return parts


def _summary(title: str, lines: Sequence[Line], written: Callable[[float], str]) -> str:
    """The chart in a sentence, for those who do not see it."""
    parts = []
    for line in lines:
        values = [value for _, value in line.points if value is not None]
        if values:
            low, high = written(min(values)), written(max(values))
            parts.append(f"{line.name} {written(values[-1])} at the end, from {low} to {high}")
    return f"{title}: {'; '.join(parts) or 'nothing measured yet'}"
