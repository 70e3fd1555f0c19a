"""An analysis in words."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from csdf.cli.analysis import Analysis
from csdf.execution.liveness import Deadlock
from csdf.model.graph import Graph
from csdf.timing.latency import Latency
from csdf.timing.throughput import CycleStep

MOST = 12
"""Actors, or steps of a cycle, that are listed one by one."""


def as_text(graph: Graph, result: Analysis) -> str:
    """A few lines that say what `result` says of `graph`."""
    phases = sum(actor.phases for actor in graph.actors)
    lines = [
        f"{graph.name or 'graph'}: {_count(len(graph.actors), 'actor')} with "
        f"{_count(phases, 'phase')}, {_count(len(graph.channels), 'channel')}"
    ]
    if result.repetitions is None:
        return "\n".join([*lines, f"consistent  no: {result.inconsistency}"])
    lines.append(f"consistent  yes, {_count(result.phase_firings or 0, 'firing')} per iteration")
    listed = [f"{name} × {count}" for name, count in result.repetitions.items()]
    lines.append(f"repetitions {_cut(listed, ', ')}")
    if result.deadlock is not None:
        return "\n".join([*lines, *_deadlock(result.deadlock)])
    lines += ["live        not known" if result.live is None else "live        yes"]
    lines += _period(result)
    if result.critical:
        lines.append(f"held by     {_cut(_steps(result.critical), ' → ')}")
    if result.slack is not None:
        lines.append(f"slack       {_slack(result.slack)}")
    if result.latency is not None:
        lines += _latency(result.latency)
    return "\n".join(lines)


def _deadlock(deadlock: Deadlock | str) -> list[str]:
    """Who waits for whom, a line each, and what would help."""
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
    return ["live        no, because round a cycle", *waits, *remedy]


def _column(lines: list[str]) -> list[str]:
    """Under what stands to the right of a heading; the first ones only, if there are many."""
    more = [f"… {len(lines) - MOST} more"] if len(lines) > MOST else []
    return [f"            {line}" for line in [*lines[:MOST], *more]]


def _period(result: Analysis) -> list[str]:
    if result.untimed:
        names = _cut(list(result.untimed), ", ")
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


def _latency(found: Latency) -> list[str]:
    way = f"from {found.source} to {found.sink}"
    if found.distance:
        way += f", {_count(found.distance, 'iteration')} later"
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
    """The scarcest first."""
    ordered = sorted(slack.items(), key=lambda item: (item[1] is None, item[1] or 0))
    listed = [f"{name} {'unlimited' if one is None else one}" for name, one in ordered]
    return _cut(listed, ", ")


def _steps(critical: Sequence[CycleStep]) -> list[str]:
    """Firings of one actor that wait for each other through one channel share one entry."""
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


def _cut(parts: list[str], separator: str) -> str:
    more = f"{separator}… {len(parts) - MOST} more" if len(parts) > MOST else ""
    return separator.join(parts[:MOST]) + more


def exact(value: Fraction) -> str:
    """A fraction, and about what it is as a decimal, however large."""
    if value.denominator == 1:
        return str(value)
    try:
        about: float | Decimal = float(value)
    except OverflowError:
        about = Decimal(value.numerator) / Decimal(value.denominator)
    return f"{value} ≈ {about:.6g}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
