"""Draw a simulation as an SVG Gantt chart, or write it as a trace that Perfetto opens.

Each row is a processor, or an actor without one; a firing is a box, coloured by its iteration.
Firings of a row that overlap are drawn in lanes below each other.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from fractions import Fraction

from csdf.errors import TooLargeError
from csdf.execution.simulation import Firing, Timeline
from csdf.formats.safe_xml import escaped

MOST_BOXES = 20_000
"""Largest number of firings that are drawn."""

_COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_LEFT, _WIDTH, _LANE, _GAP, _TOP = 150, 1000, 18, 6, 24
_MOST_TICKS = 10


def as_svg(timeline: Timeline) -> str:
    """Return an SVG document. Raises `TooLargeError` for more than `MOST_BOXES` firings.

    >>> from csdf import Actor, Graph, simulate
    >>> one = Graph("one", (Actor("camera", (Fraction(2),), 1),), ())
    >>> as_svg(simulate(one, iterations=3)).count("<rect")
    3
    """
    if len(timeline.firings) > MOST_BOXES:
        raise TooLargeError(
            f"a chart of {len(timeline.firings)} firings would be unreadable; "
            f"simulate fewer iterations (at most {MOST_BOXES} firings), or write a trace"
        )
    scale = Fraction(_WIDTH) / timeline.end if timeline.end else Fraction(0)
    body: list[str] = []
    top = _TOP
    for row, firings in _rows(timeline.firings).items():
        lanes = _lanes(firings)
        height = _LANE * (max(lanes) + 1)
        body.append(f'<text x="4" y="{top + 13}">{escaped(row)}</text>')
        for firing, lane in zip(firings, lanes, strict=True):
            body.append(_box(firing, scale, top + lane * _LANE))
        top += height + _GAP
    step = _step(timeline.end) if timeline.end else Fraction(1)
    ticks = [step * i for i in range(int(timeline.end / step) + 1)] if timeline.end else []
    axis = []
    for tick in ticks:
        x = _number(_LEFT + tick * scale)
        axis.append(f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{top}" stroke="#ddd"/>')
        axis.append(f'<text x="{x}" y="12" text-anchor="middle">{float(tick):.4g}</text>')
    size = f'width="{_LEFT + _WIDTH + 40}" height="{top + _GAP}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, *axis, *body, "</svg>", ""])


def as_trace(timeline: Timeline, microseconds: Fraction = Fraction(1)) -> dict[str, object]:
    """Return a value for `json.dumps` in the Chrome trace format.

    `microseconds` is the length of a unit of time.
    """
    rows = list(_rows(timeline.firings))
    number = {row: i for i, row in enumerate(rows, 1)}
    events: list[dict[str, object]] = [
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": number[row], "args": {"name": row}}
        for row in rows
    ]
    events += [
        {
            "name": f"{firing.actor}[{firing.phase}]",
            "cat": "firing",
            "ph": "X",
            "pid": 1,
            "tid": number[firing.row],
            "ts": float(firing.start * microseconds),
            "dur": float((firing.end - firing.start) * microseconds),
            "args": {"iteration": firing.iteration},
        }
        for firing in timeline.firings
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _step(end: Fraction) -> Fraction:
    """Return a step of the axis: 1, 2 or 5 times a power of ten."""
    power = Fraction(10) ** math.floor(math.log10(end / _MOST_TICKS))
    return next(n * power for n in (1, 2, 5, 10, 20) if n * power * _MOST_TICKS >= end)


def _rows(firings: Iterable[Firing]) -> dict[str, list[Firing]]:
    rows: dict[str, list[Firing]] = {}
    for firing in firings:
        rows.setdefault(firing.row, []).append(firing)
    return rows


def _lanes(firings: list[Firing]) -> list[int]:
    """Return a lane for each firing in which no other firing overlaps it."""
    free: list[int] = []
    running: list[tuple[Fraction, int]] = []
    used = 0
    lanes = []
    for firing in firings:
        while running and running[0][0] <= firing.start:
            heapq.heappush(free, heapq.heappop(running)[1])
        if not free:
            heapq.heappush(free, used)
            used += 1
        lane = heapq.heappop(free)
        lanes.append(lane)
        heapq.heappush(running, (firing.end, lane))
    return lanes


def _box(firing: Firing, scale: Fraction, top: int) -> str:
    left, width = _LEFT + firing.start * scale, (firing.end - firing.start) * scale
    name = f"{firing.actor}[{firing.phase}]"
    title = f"{name}, iteration {firing.iteration}, {firing.start} to {firing.end}"
    colour = _COLOURS[firing.iteration % len(_COLOURS)]
    where = f'x="{_number(left)}" y="{top}" width="{_number(max(width, Fraction(1, 2)))}"'
    box = (
        f'<rect {where} height="{_LANE - 2}" fill="{colour}"><title>{escaped(title)}</title></rect>'
    )
    if width < 7 * len(name):
        return box
    return f'{box}<text x="{_number(left + 3)}" y="{top + 12}" fill="white">{escaped(name)}</text>'


def _number(value: Fraction) -> str:
    return f"{float(value):.2f}".rstrip("0").rstrip(".")
