"""Format what the command `csdf` prints: analyses, smallest capacities and schedules."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from csdf.analysis import Analysis
from csdf.buffers.capacities import CapacityProgress, Front, Point, Smallest, Unit
from csdf.execution.liveness import Deadlock
from csdf.execution.static_orders import Orders
from csdf.model.graph import Graph
from csdf.timing.latency import Latency
from csdf.timing.schedule import Schedule
from csdf.timing.throughput import CycleStep

if TYPE_CHECKING:
    from csdf.buffers.latency_front import LatencyFront
    from csdf.buffers.shared_memory import SharedMemory
    from csdf.parametric_analysis import ParametricAnalysis
    from csdf.timing.best_orders import BestOrders
    from csdf.timing.k_periodic import KPeriodic
    from csdf.timing.scenarios import ScenarioPeriods

MOST = 12
"""Largest number of actors, or steps of a cycle, that are listed."""

MOST_COLUMNS = 10
"""Channels up to which each has a column; with more, rows list the changes."""


def analysis_text(graph: Graph, result: Analysis) -> str:
    """Return `result`, the analysis of `graph`, in a few lines."""
    phases = sum(actor.phases for actor in graph.actors)
    lines = [
        f"{graph.name or 'graph'}: {counted(len(graph.actors), 'actor')} with "
        f"{counted(phases, 'phase')}, {counted(len(graph.channels), 'channel')}"
    ]
    if result.repetitions is None:
        return "\n".join([*lines, f"consistent  no: {result.inconsistency}"])
    lines.append(f"consistent  yes, {counted(result.phase_firings or 0, 'firing')} per iteration")
    listed = [f"{name} × {count}" for name, count in result.repetitions.items()]
    lines.append(f"repetitions {cut(listed, ', ')}")
    if result.deadlock is not None:
        lines += _deadlock(result.deadlock)
        if result.live_actors:
            lines.append(f"            These actors fire forever: {cut(result.live_actors, ', ')}.")
        return "\n".join(lines)
    lines += ["live        not known" if result.live is None else "live        yes"]
    lines += _period(result)
    lines += _parts(result)
    if result.critical:
        lines.append(f"held by     {cut(_steps(result.critical), ' → ')}")
    if result.slack is not None:
        lines.append(f"slack       {_slack(result.slack)}")
    if result.latency is not None:
        lines += _latency(result.latency)
    return "\n".join(lines)


def _deadlock(deadlock: Deadlock | str) -> list[str]:
    """Return the waits of a deadlock, one per line, and its remedies."""
    if isinstance(deadlock, str):
        return [f"live        no. {deadlock}"]
    waits = _column([str(wait) for wait in deadlock.cycle])
    changes = [str(remedy) for remedy in deadlock.remedies or deadlock.together]
    if deadlock.remedies:
        remedy = [f"remedy      {changes[0]}", *_column([f"Or: {one}" for one in changes[1:]])]
    elif deadlock.together:
        remedy = ["remedy      No change of a single channel. Together:", *_column(changes)]
    else:
        remedy = ["remedy      No change of a single channel."]
    return ["live        no, because these waits form a cycle", *waits, *remedy]


def _column(lines: list[str]) -> list[str]:
    """Indent lines below the text right of a heading; shorten a long list."""
    more = [f"… {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [f"            {line}" for line in [*lines[:MOST], *more]]


def _period(result: Analysis) -> list[str]:
    if result.untimed:
        names = cut(list(result.untimed), ", ")
        return [f"period      not known: there is no execution time of {names}"]
    if result.period == 0:
        return ["period      0: nothing bounds the throughput"]
    if result.period is not None:
        return [f"period      {exact(result.period)} per iteration"]
    if result.bounds is None:
        return []
    least, most = result.bounds
    above = "" if most is None else f" and at most {exact(most)}"
    return [f"period      at least {exact(least)}{above} per iteration"]


def _parts(result: Analysis) -> list[str]:
    """Return the periods of parts that no channel joins, and the throughputs of actors."""
    lines = []
    if result.parts:
        lines.append(
            f"parts       {len(result.parts)} that no channel joins, each with its own iteration; "
            "the period of each:"
        )
        lines += _column([f"{cut(own, ', ')}: {exact(time)}" for own, time in result.parts])
    if result.throughput is not None:
        listed = [
            f"{name} {'unlimited' if rate is None else rate}"
            for name, rate in result.throughput.items()
        ]
        lines.append(f"throughput  {cut(listed, ', ')} (firings per unit of time)")
    if result.accumulating:
        lines.append(f"            Tokens pile up without end in {cut(result.accumulating, ', ')}.")
    return lines


def _latency(found: Latency) -> list[str]:
    way = f"from {found.source} to {found.sink}"
    if found.distance:
        way += f", {counted(found.distance, 'iteration')} later"
    lines = [f"latency     {exact(found.first)} for the first iteration {way}"]
    if found.steady is None or found.worst is None:
        lines.append(f"            self-timed: {found.reason}")
    else:
        lines.append(f"            {exact(found.steady)} in the steady state, self-timed")
        if found.worst > found.steady:
            lines.append(f"            {exact(found.worst)} at worst, before the steady state")
    if found.periodic is not None:
        lines.append(
            f"            {exact(found.periodic)} at best, with the source paced by the period"
        )
    if found.minimal is not None and found.minimal != found.periodic:
        lines.append(f"            {exact(found.minimal)} at best, with the source paced slower")
    return lines


def _slack(slack: Mapping[str, Fraction | None]) -> str:
    """Return the slack of actors, the smallest first."""
    ordered = sorted(slack.items(), key=lambda item: (item[1] is None, item[1] or 0))
    listed = [f"{name} {'unlimited' if one is None else one}" for name, one in ordered]
    return cut(listed, ", ")


def _steps(critical: Sequence[CycleStep]) -> list[str]:
    """Return the steps of a critical cycle; consecutive firings of an actor share an entry."""
    shown = []
    for (actor, channel, for_space), run in itertools.groupby(
        critical, lambda step: (step.actor, step.channel, step.for_space)
    ):
        phases = [step.phase for step in run]
        more = f"…[{phases[-1]}]" if len(set(phases)) > 1 else ""
        more += f" × {len(phases)}" if len(phases) > len(set(phases)) else ""
        waits = "" if channel is None else f" ({'room in ' if for_space else ''}{channel})"
        shown.append(f"{actor}[{phases[0]}]{more}{waits}")
    return shown


def cut(parts: Sequence[str], separator: str) -> str:
    """Return a list, shortened if it is long."""
    more = f"{separator}… {len(parts) - MOST} more" if len(parts) > MOST else ""
    return separator.join(parts[:MOST]) + more


def exact(value: Fraction) -> str:
    """Return a fraction, and its approximate value as a decimal."""
    if value.denominator == 1:
        return str(value)
    try:
        about: float | Decimal = float(value)
    except OverflowError:
        about = Decimal(value.numerator) / Decimal(value.denominator)
    return f"{value} ≈ {about:.6g}"


def counted(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def front_text(front: Front, live: Smallest, unit: Unit) -> str:
    """Return a table of the points, and bounds on the rest of the front."""
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
    """Return one line for a search in progress."""
    period, strict = progress.goal.period, progress.goal.strict
    goal = "live" if period is None else f"period {'below ' if strict else ''}{exact(period)}"
    found = "" if progress.enough is None else f", at most {progress.enough}"
    spent = f"{progress.spent:.0%} of the effort spent"
    return f"csdf: {goal}: at least {progress.at_least} {unit}{found}; {spent}"


def _table(points: Sequence[Point], unit: Unit) -> list[str]:
    """Return the table, with a column per channel or the changes from row to row."""
    names = list(points[0].capacities)
    few = len(names) <= MOST_COLUMNS
    rows = [[f"size ({unit})", "period", *(names if few else ())]]
    changes = [""]
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
        changes.append("" if few else f"  {', '.join(listed)}")
        before = point.capacities
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + more
        for row, more in zip(rows, changes, strict=True)
    ]


def front_json(front: Front, live: Smallest, unit: Unit) -> dict[str, object]:
    """Return a value for `json.dumps`; its keys are part of the command's interface."""
    return {
        "unit": unit,
        "channels": list(live.point.capacities),
        "goal": front.goal,
        "complete": front.complete,
        "points": [asdict(point) for point in front.points],
        "next_at_least": front.next_at_least,
        "smallest_live": _smallest(live),
        "smallest_for_goal": _smallest(front.rest or _proved(front.points[-1])),
    }


def _proved(point: Point) -> Smallest:
    return Smallest(point, point.size)


def _smallest(found: Smallest) -> dict[str, object]:
    return {**asdict(found.point), "exact": found.exact, "at_least": found.at_least}


def _bounds(what: str, found: Smallest, unit: Unit) -> list[str]:
    if found.exact:
        sentence = f"For {what}, {found.point.size} {unit} are enough, and no fewer are:"
    else:
        gap = 100 * (found.point.size - found.at_least) / max(found.at_least, 1)
        sentence = (
            f"For {what}, {found.point.size} {unit} are enough and {found.at_least} are proved to "
            f"be needed (a gap of {gap:.3g} %):"
        )
    listed = ", ".join(f"{name} {count}" for name, count in found.point.capacities.items())
    return [sentence, f"  {listed}"]


def claims_text(claims: Mapping[str, Any]) -> str:
    """Return what a certificate proves, in sentences."""
    if "spans" in claims:
        return _plan_claims_text(claims)
    if not claims["consistent"]:
        return "Proved: the graph is inconsistent."
    if not claims["live"]:
        return "Proved: the graph is consistent, and deadlocks."
    lines = ["Proved: the graph is consistent and live."]
    if "period" in claims:
        lines.append(f"Proved: its period is {exact(Fraction(claims['period']))}.")
    if names := claims.get("capacities"):
        worse = "a deadlock or a longer period" if "period" in claims else "a deadlock"
        lines.append(f"Proved: one place less means {worse} in {cut(names, ', ')}.")
    return "\n".join(lines)


def _plan_claims_text(claims: Mapping[str, Any]) -> str:
    lines = [
        "the plan completes every frame, with phases in any work-conserving order, in turn frame "
        "by frame, and pipelined"
    ]
    if "period" in claims:
        lines.append(
            f"pipelined, a cycle of frames takes {exact(Fraction(claims['period']))} s if phases "
            "take the predicted times, and the wire none"
        )
    lines.append(f"no skews make channels span less than {claims['spans']} bytes x periods")
    for what, of in (
        ("nanoseconds", "let the busiest node compute for less than {} ns per cycle of frames"),
        ("bytes", "hold less than {} bytes of weights and engine on the fullest node"),
    ):
        if what in claims:
            lines.append(f"no other assignment would {of.format(claims[what])}")
    return "\n".join(f"Proved: {line}." for line in lines)


def schedule_json(schedule: Schedule, orders: Orders) -> dict[str, object]:
    """Return a value for `json.dumps`."""
    return {
        "period": schedule.period,
        "iterations": schedule.iterations,
        "orders": orders,
        "starts": schedule.starts,
    }


def schedule_text(schedule: Schedule, orders: Orders) -> str:
    """Return the schedule as text."""
    lines = [f"{processor}={','.join(map(str, order))}" for processor, order in orders.items()]
    if schedule.iterations == 1:
        lines.append(f"every firing again after {schedule.period}; it starts at")
    else:
        turn = schedule.period * schedule.iterations
        lines.append(f"every {schedule.iterations} iterations again after {turn}; they start at")
    lines += [f"{name}: {' '.join(map(str, own))}" for name, own in schedule.starts.items()]
    return "\n".join(lines)


def latency_front_text(front: LatencyFront, unit: Unit) -> str:
    """Return a table of the points of size, period and latency."""
    rows = [[f"size ({unit})", "period", "latency", "capacities"]]
    for point in front.points:
        listed = ", ".join(f"{name} {count}" for name, count in point.capacities.items())
        rows.append([str(point.size), exact(point.pace), exact(point.latency), listed])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row[:3], widths, strict=False))
        + f"  {row[3]}"
        for row in rows
    ]
    if front.complete:
        lines.append(
            "Each row is proved: nothing smaller has its latency at its period or a shorter one."
        )
    else:
        lines.append("The effort did not suffice: rows may be missing, or not be the smallest.")
    return "\n".join(lines)


def k_periodic_text(found: KPeriodic | None) -> str:
    """Return a K-periodic schedule as text."""
    if found is None:
        return (
            "There is no such schedule: channels have too little room, or too few initial tokens, "
            "for firings at even distances. Try more cycles (--cycles)."
        )
    lines = [f"period {exact(found.period)} per iteration; actors start at"]
    lines += [
        f"{name}: {' '.join(map(str, own))}, again after {found.turns[name]}"
        for name, own in found.starts.items()
    ]
    return "\n".join(lines)


def scenarios_text(found: ScenarioPeriods) -> str:
    """Return the periods of scenarios, and the worst of any run."""
    lines = [f"{name}: period {exact(period)}" for name, period in found.periods.items()]
    if not found.critical:
        return "\n".join([*lines, "any run: nothing bounds the throughput"])
    lines.append(f"any run: at most {exact(found.worst)} per iteration in the long run")
    around = cut(found.critical, " → ")
    return "\n".join([*lines, f"the slowest run repeats: {around}"])


def parameters_text(found: ParametricAnalysis) -> str:
    """Return the counts for all values, and a row for each combination of values."""
    if found.repetitions is None:
        lines = [f"consistent  not for all values: {found.inconsistency}"]
    else:
        listed = [f"{name} × {count}" for name, count in found.repetitions.items()]
        lines = ["consistent  for all values", f"repetitions {cut(listed, ', ')}"]
    rows = [[*found.values[0][0], "period"]]
    for values, own in found.values:
        shown = "not known" if own.live is None else "deadlock"
        if own.inconsistency is not None:
            shown = "inconsistent"
        elif own.live:
            shown = "longer than the effort allows" if own.period is None else exact(own.period)
        rows.append([*map(str, values.values()), shown])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines += [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    if found.longest is not None:
        longest, values = found.longest
        at = ", ".join(f"{name} = {value}" for name, value in values.items())
        lines.append(f"longest     {exact(longest)}" + (f", with {at}" if at else ""))
    return "\n".join(lines)


def memory_text(memory: SharedMemory) -> str:
    """Return the addresses of buffers."""
    lines = []
    for name, own in memory.buffers.items():
        size, tokens = counted(own.size_bytes, "byte"), counted(own.tokens, "token")
        lines.append(f"{name}: {size} at {own.address}, {tokens}")
    least = (
        "and no less is enough"
        if memory.at_least_bytes == memory.total_bytes
        else f"and at least {memory.at_least_bytes} are needed"
    )
    separate = f"{memory.separate_bytes} without sharing"
    lines.append(f"{counted(memory.total_bytes, 'byte')} together, {least}; {separate}")
    return "\n".join(lines)


def best_orders_text(best: BestOrders, *, binding: bool = False) -> str:
    """Return whether the orders, or the binding with them, are proved to be the best."""
    if best.exact:
        what = "binding has" if binding else "static orders have"
        return f"No {what} a shorter period than {exact(best.period)}."
    return (
        f"The effort did not suffice: better {'bindings' if binding else 'orders'} may exist, with "
        f"a period of at least {exact(best.at_least)}."
    )
