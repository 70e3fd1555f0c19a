"""The cycle of waiting firings that holds the period, with as few firings looked at as will do.

Expanding all firings of an iteration may take far more than is needed to find that cycle. So each
actor starts with K = 1 cycles of its phases, which gives the best strictly periodic schedule; if
the critical cycle of the event graph only binds because of that restriction, K is raised for its
actors, until it holds for every schedule (K-Iter of Bodin et al., DAC 2016). A cycle does so once
each K on it is a multiple of q / g, where g is the greatest common divisor of the repetition counts
q of the actors on it.

With some K raised and others not, channels between them have up to K × K constraints, where all
firings of an iteration have one each. So all are taken as soon as that is not much more work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from csdf.errors import PeriodBoundsError, TooLargeError
from csdf.model.lowered import Lowered
from csdf.model.whole_numbers import readable
from csdf.timing import event_graph
from csdf.timing.cycle_ratio import maximum_cycle_ratio

Growth = Literal["auto", "step by step", "at once"]
"""How K is raised from 1: step by step, at once to the whole iteration, or what seems cheaper."""

EFFORT = 6_000_000
"""Firings and constraints that are looked at together at most: about half a minute's work."""

LITTLE = 500_000
"""Work of a whole iteration that is soon done."""

WORTHWHILE, WORTHWHILE_FOR_LITTLE = 3, 10
"""Step by step goes on while a step is that many times less work than a whole iteration."""


@dataclass(frozen=True, slots=True)
class CriticalLink:
    """On a critical cycle: a firing of `arc`'s target that waits for one of its source.

    Firings count from 0 within the `cycles` of phases of source and target that were looked at;
    `arc` is its number, −1 for the order of an actor's firings.
    """

    arc: int
    actor: int
    source_firing: int
    target_firing: int
    cycles: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Critical:
    """The period (None: deadlock) and the cycle that proves it.

    As long as its links stay what they are, no other change of the graph gives a shorter period.
    """

    period: Fraction | None
    links: tuple[CriticalLink, ...]


def critical_cycle(
    graph: Lowered,
    repetitions: Sequence[int],
    growth: Growth = "auto",
    effort: int = EFFORT,
) -> Critical:
    """The period of a graph whose firings cannot overtake each other.

    A deadlock is found if it takes time to go round its cycle.
    Raises `PeriodBoundsError` if `effort` does not suffice.
    """
    lone = busiest(graph, repetitions)
    least, most = lone.period or Fraction(0), None
    builder = event_graph.Builder(graph, repetitions)
    whole = list(repetitions)
    every = builder.work(whole)
    cycles = whole if growth == "at once" else [1] * len(whole)
    while True:
        work = builder.work(cycles)
        if work > effort:
            raise PeriodBoundsError(
                f"the exact period needs {readable(work)} constraints between the firings of an "
                f"iteration; at most {effort} are looked at (--effort)",
                least,
                most,
            )
        events = builder.build(cycles)
        unit = Fraction(events.delay_unit, events.time_unit)
        result = maximum_cycle_ratio(
            events.nodes,
            events.source,
            events.target,
            events.time,
            events.delay,
            at_least=least / unit,
        )
        if not result.cycle:
            return lone
        edges = np.array(result.cycle)
        ends = events.actors(events.source[edges]), events.actors(events.target[edges])
        wanted = _wanted(repetitions, cycles, set(ends[0].tolist()))
        period = None if result.ratio is None else result.ratio * unit
        if wanted == cycles:
            return Critical(period, _links(events, edges, ends, cycles))
        if period is not None:
            # What K-periodic schedules can keep, all can.
            most = period if most is None else min(most, period)
        cycles = wanted
        if growth == "auto" and every <= effort:
            times = WORTHWHILE if every > LITTLE else WORTHWHILE_FOR_LITTLE
            cycles = wanted if builder.work(wanted) * times < every else whole


def has_schedule(graph: Lowered, repetitions: Sequence[int]) -> bool:
    """Whether there is a strictly periodic schedule, whatever the execution times.

    Then the graph is live. If there is none, it may still be.
    """
    events = event_graph.build(_untimed(graph), repetitions, [1] * len(repetitions))
    found = maximum_cycle_ratio(
        events.nodes, events.source, events.target, events.time, events.delay
    )
    return found.ratio is not None


def cycle_of_deadlock(graph: Lowered, repetitions: Sequence[int]) -> tuple[CriticalLink, ...]:
    """Firings that wait for each other; empty if the graph is live. Raises `TooLargeError`."""
    try:
        found = critical_cycle(_untimed(graph), repetitions)
    except PeriodBoundsError as error:
        if error.at_most is not None:
            return ()
        raise TooLargeError(f"to tell whether the graph is live, {error}") from None
    return found.links if found.period is None else ()


def _untimed(graph: Lowered) -> Lowered:
    """With times of 1, because a cycle of firings that take no time would not show."""
    ones = tuple((Fraction(1),) * len(times) for times in graph.times)
    return Lowered(graph.names, ones, graph.arcs)


def _wanted(repetitions: Sequence[int], cycles: Sequence[int], around: set[int]) -> list[int]:
    """`cycles`, raised where they are too few to know what a cycle of these actors means."""
    common = math.gcd(*(repetitions[actor] for actor in around))
    found = list(cycles)
    for actor in around:
        found[actor] = math.lcm(cycles[actor], repetitions[actor] // common)
    return found


def busiest(graph: Lowered, repetitions: Sequence[int]) -> Critical:
    """The actor that takes longest by itself, of those that fire one firing at a time.

    A bound from below that is often the period, and spares the search for it.
    """
    unit = event_graph.time_unit(graph)
    alone = [
        q * sum(event_graph.scaled(times, unit))
        for q, times in zip(repetitions, graph.times, strict=True)
    ]
    best = 0
    links: tuple[CriticalLink, ...] = ()
    for number, arc in enumerate(graph.arcs):
        actor, phases = arc.source, len(graph.times[arc.source])
        if alone[actor] > best and event_graph.is_sequential(arc):
            best = alone[actor]
            links = tuple(
                CriticalLink(number, actor, phase, (phase + 1) % phases, (1, 1))
                for phase in range(phases)
            )
    return Critical(Fraction(best, unit), links)


def _links(
    events: event_graph.EventGraph,
    edges: event_graph.Indices,
    ends: tuple[event_graph.Indices, event_graph.Indices],
    cycles: Sequence[int],
) -> tuple[CriticalLink, ...]:
    rows = zip(
        events.arc[edges].tolist(),
        events.source[edges].tolist(),
        events.target[edges].tolist(),
        *(actors.tolist() for actors in ends),
        strict=True,
    )
    return tuple(
        CriticalLink(
            arc,
            from_,
            source - events.first[from_],
            target - events.first[to],
            (cycles[from_], cycles[to]),
        )
        for arc, source, target, from_, to in rows
    )
