"""What `csdf capacities` prints: the smallest capacities, in words and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from csdf.buffers.capacities import CapacityProgress, Front, Point, Smallest, Unit
from csdf.cli.report import exact

MOST_COLUMNS = 10
"""Channels up to which each has a column; where there are more, rows list what changes."""


def as_text(front: Front, live: Smallest, unit: Unit) -> str:
    """A table of the points, and what is known of the rest."""
    lines = []
    if not front.points:
        lines += _bounds("live", live, unit)
    if front.points:
        lines += _table(front.points, unit)
    if front.rest is None:
        lines.append(
            f"Each row is proved: nothing smaller has its period. {exact(front.goal)} is reached."
        )
    else:
        lines.append(f"There may be more rows from {front.next_at_least} {unit} on.")
        lines += _bounds(f"a period of {exact(front.goal)}", front.rest, unit)
    return "\n".join(lines)


def progress_text(progress: CapacityProgress, unit: Unit) -> str:
    """One line while the search goes on."""
    period, strict = progress.goal.period, progress.goal.strict
    goal = "live" if period is None else f"period {'below ' if strict else ''}{exact(period)}"
    found = "" if progress.enough is None else f", at most {progress.enough}"
    spent = f"{progress.spent:.0%} of the effort spent"
    return f"csdf: {goal}: at least {progress.at_least} {unit}{found}; {spent}"


def _table(points: Sequence[Point], unit: Unit) -> list[str]:
    """A column per channel, or, if those are many, what differs from the row before."""
    names = list(points[0].capacities)
    few = len(names) <= MOST_COLUMNS
    rows = [[f"size ({unit})", "period", *(names if few else ())]]
    told = [""]
    before: Mapping[str, int] = {}
    for point in points:
        figures = [str(point.capacities[name]) for name in names] if few else []
        rows.append([str(point.size), exact(point.period), *figures])
        changed = point.capacities.items() - before.items()
        listed = [
            f"{name} {count}"
            for name, count in point.capacities.items()
            if (name, count) in changed
        ]
        told.append("" if few else f"  {', '.join(listed)}")
        before = point.capacities
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + more
        for row, more in zip(rows, told, strict=True)
    ]


def as_json(front: Front, live: Smallest, unit: Unit) -> dict[str, object]:
    """For `json.dumps`; the keys are part of the command's interface."""
    return {
        "unit": unit,
        "channels": list(live.point.capacities),
        "goal": str(front.goal),
        "complete": front.complete,
        "points": [_point(point) for point in front.points],
        "next_at_least": front.next_at_least,
        "smallest_live": _smallest(live),
        "smallest_for_goal": _smallest(front.rest or _proved(front.points[-1])),
    }


def _proved(point: Point) -> Smallest:
    return Smallest(point, point.size)


def _smallest(found: Smallest) -> dict[str, object]:
    return {**_point(found.point), "exact": found.exact, "at_least": found.at_least}


def _point(point: Point) -> dict[str, object]:
    return {
        "size": point.size,
        "period": str(point.period),
        "capacities": dict(point.capacities),
    }


def _bounds(what: str, found: Smallest, unit: Unit) -> list[str]:
    if found.exact:
        told = f"For {what}, {found.point.size} {unit} are enough, and no fewer are:"
    else:
        gap = 100 * (found.point.size - found.at_least) / max(found.at_least, 1)
        told = (
            f"For {what}, {found.point.size} {unit} are enough and {found.at_least} are proved to "
            f"be needed (a gap of {gap:.3g} %):"
        )
    listed = ", ".join(f"{name} {count}" for name, count in found.point.capacities.items())
    return [told, f"  {listed}"]
