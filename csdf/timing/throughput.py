"""Compute the exact period of self-timed execution, and the critical cycle that determines it.

The period is the time of one iteration in the long run when every actor fires as soon as it can;
the throughput is 1 / period. The period is the maximum cycle ratio of the waiting firings
(`csdf.timing.cycle_ratio`, `csdf.timing.event_graph`). Without a cycle it is 0: nothing bounds the
throughput.

Cycle ratios presume that the firings of an actor end in the order in which they start. Firings of
different times that may overlap could overtake each other. If all phases of such an actor last as
long as its shortest phase, none overtakes, and the period is a lower bound; with its longest phase
it is an upper bound. If the bounds differ, the self-timed execution of each strongly connected
component is followed until a state recurs (`csdf.timing.selftimed`).

Liveness is decided by executing an iteration, or, if that is long, by finding a periodic schedule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf.errors import DeadlockError, OvertakingError, PeriodBoundsError, TooLargeError
from csdf.execution.liveness import refuse_deadlock
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.graph_algorithms import components
from csdf.model.lowered import Arc, Lowered, Origin, lower, readable
from csdf.timing import cycle_ratio, event_graph, selftimed
from csdf.timing.cycle_ratio import EFFORT, CriticalLink, Growth, critical_cycle

Method = Literal["auto", "cycle ratio", "expansion", "state space"]

EXECUTED_AT_FIRST = 30_000
"""Firings of an iteration up to which liveness is decided by executing it at first."""

EXECUTION_LIMIT = 1_000_000
"""Steps of a longer execution that decides liveness if no periodic schedule was found."""


@dataclass(frozen=True, slots=True)
class CycleStep:
    """A firing on a critical cycle, and the channel through which the next firing waits for it.

    `phase` counts from 0. The next firing waits for tokens of `channel`, or, if `for_space`, for
    room in it. `channel` is None if the next firing is one of the same actor, which waits for this
    one to start or end.
    """

    actor: str
    phase: int
    channel: str | None
    for_space: bool


@dataclass(frozen=True, slots=True)
class Throughput:
    """The exact period (0: unbounded throughput), and a critical cycle of firings.

    `critical` is empty if the period is 0, or if execution or two equal bounds have shown it.
    """

    period: Fraction
    critical: tuple[CycleStep, ...]


def throughput(graph: Graph, method: Method = "auto", effort: int = EFFORT) -> Throughput:
    """Return the period of `graph` in the unit of its execution times, and a critical cycle.

    All methods give the same period: `cycle ratio` raises K step by step, `expansion` takes all
    firings at once, `state space` executes the graph, `auto` takes the quickest that applies.
    `effort` bounds the firings and constraints of an event graph.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError` (`PeriodBoundsError` if the
    graph is live), and `ValueError` if the method does not apply because firings may overtake each
    other.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("p", (Fraction(2),), 1), Actor("c", (Fraction(1), Fraction(3)), 1)
    >>> channel = Channel("tokens", "p", "c", (2,), (1, 1), capacity=2)
    >>> found = throughput(Graph("pair", actors, (channel,)))
    >>> found.period, sorted({step.actor for step in found.critical})
    (Fraction(6, 1), ['c', 'p'])
    """
    repetitions = repetition_vector(graph)
    lowered = lower(graph)
    counts = [repetitions[actor.name] for actor in graph.actors]
    unordered = overtaking(lowered)
    if method in ("cycle ratio", "expansion") and unordered:
        raise ValueError(f"firings of {lowered.names[min(unordered)]!r} may overtake each other")
    _require_live(graph, lowered, counts)
    if not unordered and method != "state space":
        try:
            return _by_cycle_ratio(lowered, counts, method, effort)
        except PeriodBoundsError as error:
            most = _one_by_one(lowered, counts)
            most = most if error.at_most is None else min(most, error.at_most)
            if most == error.at_least:
                return Throughput(most, ())
            raise PeriodBoundsError(str(error), error.at_least, most) from None
    parts = [(part, [counts[a] for a in members]) for part, members in components(lowered)]
    if method == "state space":
        periods = [selftimed.period(part, own) for part, own in parts]
        return Throughput(max(periods, default=Fraction(0)), ())
    return _slowest(parts, effort)


def actor_periods(graph: Graph, effort: int = EFFORT) -> dict[str, Fraction]:
    """Return, by actor, how long its firings of one iteration take in the long run (0: no time).

    An actor can be faster than the whole graph, because only what lies before it slows it down: its
    period is the longest of any strongly connected component from which a path of channels, or of
    room, leads to it. Divided by these periods, the repetition counts are the actors' throughputs.
    Raises as `throughput` does.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("fast", (Fraction(1),), 1), Actor("slow", (Fraction(3),), 1)
    >>> channel = Channel("c", "fast", "slow", (1,), (1,))
    >>> found = actor_periods(Graph("g", actors, (channel,)))
    >>> found["fast"], found["slow"]
    (Fraction(1, 1), Fraction(3, 1))
    """
    repetitions = repetition_vector(graph)
    lowered = lower(graph)
    counts = [repetitions[name] for name in lowered.names]
    _require_live(graph, lowered, counts)
    behind: list[list[int]] = [[] for _ in counts]
    for arc in lowered.arcs:
        behind[arc.source].append(arc.target)
    found: dict[int, Fraction] = {}
    parts = [
        (_slowest([(part, [counts[a] for a in members])], effort).period, members)
        for part, members in components(lowered)
    ]
    for period, members in sorted(parts, reverse=True):
        waiting = [actor for actor in members if actor not in found]
        while waiting:
            actor = waiting.pop()
            if actor not in found:
                found[actor] = period
                waiting += behind[actor]
    return {name: found.get(actor, Fraction(0)) for actor, name in enumerate(lowered.names)}


def accumulating_channels(graph: Graph, periods: Mapping[str, Fraction]) -> list[str]:
    """Return the channels in which tokens pile up without end if every actor fires when it can.

    `periods` are those of `actor_periods`. A graph without such channels is self-timed bounded: it
    reaches its throughput with finite memory, and nothing has to slow its sources down.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("fast", (Fraction(1),), 1), Actor("slow", (Fraction(3),), 1)
    >>> graph = Graph("g", actors, (Channel("c", "fast", "slow", (1,), (1,)),))
    >>> accumulating_channels(graph, actor_periods(graph))
    ['c']
    """
    return [c.name for c in graph.channels if periods[c.source] < periods[c.target]]


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Bounds on a component's period: that of `least`, and `most`.

    `why` is a sentence that says why the exact period was not found; empty if it was.
    """

    least: Throughput
    most: Fraction
    why: str = ""


def _slowest(parts: Sequence[tuple[Lowered, list[int]]], effort: int) -> Throughput:
    """Return the throughput of the slowest component. Raises `PeriodBoundsError`.

    A component is executed only if it could be the slowest one.
    """
    found = [_bounds(part, counts, effort) for part, counts in parts]
    surest = max((one.least for one in found), key=_period, default=_UNBOUNDED)
    for place, (part, counts) in enumerate(parts):
        if found[place].most > surest.period and overtaking(part):
            found[place] = _by_execution(part, counts, found[place])
            surest = max(surest, found[place].least, key=_period)
    open_ = [one for one in found if one.most > surest.period]
    if not open_:
        return surest
    raise PeriodBoundsError(open_[0].why, surest.period, max(one.most for one in open_))


_UNBOUNDED = Throughput(Fraction(0), ())


def _period(one: Throughput) -> Fraction:
    return one.period


def _one_by_one(graph: Lowered, counts: Sequence[int]) -> Fraction:
    """Return the time of all firings of an iteration, one after the other, of any component.

    It bounds the period of a live graph from above, also where firings overtake each other.
    """
    each = (
        sum((counts[a] * sum(graph.times[a], Fraction(0)) for a in members), Fraction(0))
        for _, members in components(graph)
    )
    return max(each, default=Fraction(0))


def _bounds(part: Lowered, counts: Sequence[int], effort: int) -> _Bounds:
    """Return bounds by cycle ratios; they agree unless firings overtake or are too many."""
    quick, one_by_one = _with_equal_times(part, min), _one_by_one(part, counts)
    try:
        least = _by_cycle_ratio(quick, counts, "auto", effort)
    except PeriodBoundsError as error:
        most = one_by_one if error.at_most is None or overtaking(part) else error.at_most
        return _Bounds(Throughput(error.at_least, ()), min(most, one_by_one), str(error))
    try:
        most = _by_cycle_ratio(_with_equal_times(part, max), counts, "auto", effort).period
    except PeriodBoundsError as error:
        most = one_by_one if error.at_most is None else error.at_most
        return _Bounds(Throughput(least.period, ()), min(most, one_by_one), str(error))
    place = {name: actor for actor, name in enumerate(part.names)}
    ends = [(place[step.actor], step.phase) for step in least.critical]
    if any(part.times[actor][phase] != quick.times[actor][phase] for actor, phase in ends):
        least = Throughput(least.period, ())  # in fact its firings take longer than that
    return _Bounds(least, most)


def _by_execution(part: Lowered, counts: Sequence[int], known: _Bounds) -> _Bounds:
    try:
        period = selftimed.period(part, counts)
    except TooLargeError as error:
        return _Bounds(known.least, known.most, str(error))
    return _Bounds(Throughput(period, ()), period)


def require_live(graph: Graph) -> None:
    """Raise `DeadlockError` if the graph deadlocks, `TooLargeError` if that takes too long.

    If an execution has shown the deadlock, the error is a `DiagnosedError`. Raises
    `InconsistentGraphError` too. Other than `check_liveness`, it does not need to execute an
    iteration.
    """
    repetitions = repetition_vector(graph)
    _require_live(graph, lower(graph), [repetitions[actor.name] for actor in graph.actors])


def _require_live(graph: Graph, lowered: Lowered, counts: Sequence[int]) -> None:
    firings = sum(q * len(times) for q, times in zip(counts, lowered.times, strict=True))
    if firings > EXECUTED_AT_FIRST and cycle_ratio.has_schedule(lowered, counts):
        return
    try:
        refuse_deadlock(graph, EXECUTION_LIMIT)
    except TooLargeError:
        _require_room(lowered)
        links = cycle_ratio.cycle_of_deadlock(lowered, counts)
        if links:
            around = ", ".join(dict.fromkeys(repr(lowered.names[link.actor]) for link in links))
            raise DeadlockError(f"deadlock: {around} wait for each other") from None


def _require_room(graph: Lowered) -> None:
    """Raise `DeadlockError` if two actors deadlock, whatever the others do.

    If p tokens are put and c taken at a time, and g = gcd(p, c), then the tokens and the free
    places of a channel, both rounded down to multiples of g, must be p + c − g together.
    """
    opposite: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], Arc] = {}
    for arc in graph.arcs:
        if arc.source == arc.target or len(arc.production) > 1 or len(arc.consumption) > 1:
            continue
        put, taken = arc.production[0], arc.consumption[0]
        grain = math.gcd(put, taken)
        other = opposite.get((arc.target, arc.source, arc.consumption, arc.production))
        least = put + taken - grain
        if other is not None and (arc.tokens // grain + other.tokens // grain) * grain < least:
            ends = f"{graph.names[arc.source]!r} and {graph.names[arc.target]!r}"
            names = [one.channel.name for one in (other, arc) if one.channel is not None]
            there = " and ".join(map(repr, dict.fromkeys(names)))
            multiples = "" if grain == 1 else f", in multiples of {grain}"
            raise DeadlockError(
                f"deadlock: {ends} wait for each other: at rates of {readable(put)} and "
                f"{readable(taken)}, {there} must have {readable(least)} tokens and places "
                f"together{multiples}, and not {readable(arc.tokens + other.tokens)}"
            )
        own = (arc.source, arc.target, arc.production, arc.consumption)
        if own not in opposite or arc.tokens < opposite[own].tokens:
            opposite[own] = arc


def _with_equal_times(
    graph: Lowered, choose: Callable[[tuple[Fraction, ...]], Fraction]
) -> Lowered:
    """Give all phases of each actor whose firings may overtake each other the chosen time."""
    unordered = overtaking(graph)
    if not unordered:
        return graph
    times = tuple(
        (choose(times),) * len(times) if actor in unordered else times
        for actor, times in enumerate(graph.times)
    )
    return Lowered(graph.names, times, graph.arcs)


def overtaking(graph: Lowered) -> set[int]:
    """Return the actors of which a firing may end before one that started earlier."""
    sequential = event_graph.sequential_actors(graph)
    return {
        actor
        for actor, times in enumerate(graph.times)
        if actor not in sequential and len(set(times)) > 1
    }


def require_order(graph: Lowered) -> None:
    """Raise `OvertakingError` if a firing may end before one of its actor that started earlier."""
    unordered = overtaking(graph)
    if unordered:
        raise order_error(graph.names[min(unordered)])


def order_error(actor: str) -> OvertakingError:
    """Return the error for an actor whose firings may overtake each other."""
    return OvertakingError(
        f"firings of actor {actor!r} may overlap and have different times, so a later one may end "
        "first; give it a self-channel or a concurrency of 1"
    )


def _by_cycle_ratio(
    graph: Lowered, repetitions: Sequence[int], method: Method, effort: int
) -> Throughput:
    growth: dict[Method, Growth] = {"cycle ratio": "step by step", "expansion": "at once"}
    found = critical_cycle(graph, repetitions, growth.get(method, "auto"), effort)
    assert found.period is not None  # noqa: S101 (the graph is live)
    return Throughput(found.period, tuple(_step(graph, link) for link in found.links))


def _step(graph: Lowered, link: CriticalLink) -> CycleStep:
    phase = link.source_firing % len(graph.times[link.actor])
    arc = graph.arcs[link.arc] if link.arc >= 0 else None
    channel = arc.channel.name if arc is not None and arc.channel is not None else None
    for_space = arc is not None and arc.origin is Origin.SPACE
    return CycleStep(graph.names[link.actor], phase, channel, for_space)
