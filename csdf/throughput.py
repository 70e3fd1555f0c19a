"""The exact period of self-timed execution, and the cycle that holds it.

The period is the time of one iteration in the long run when every actor fires as soon as it can;
the throughput is 1 / period. It is the largest ratio of time to delay of any cycle of waiting
firings (`csdf.critical`, `csdf.event_graph`, `csdf.cycle_ratio`); without such a cycle it is 0:
there is no bound.

Cycle ratios presume that the firings of an actor end in the order in which they start. Where they
may overtake each other (phases of different times that may overlap), self-timed execution is
followed until a state comes back (`csdf.selftimed`), in each strongly connected component.

That the graph is live is found by executing an iteration, or, where that is long, by a schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf import critical, event_graph, selftimed
from csdf.consistency import repetition_vector
from csdf.critical import EFFORT, Critical, Growth, Link, critical_cycle
from csdf.errors import DeadlockError, PeriodBoundsError, TooLargeError
from csdf.graph import Graph
from csdf.liveness import check_liveness
from csdf.lowered import Arc, Lowered, Origin, lower

__all__ = [
    "EFFORT",
    "Critical",
    "Link",
    "Step",
    "Throughput",
    "components",
    "critical_cycle",
    "throughput",
]

Method = Literal["auto", "cycle ratio", "expansion", "state space"]

NODE_LIMIT = 1_000_000
"""Firings of an iteration beyond which they are not looked at one by one."""

EXECUTED = 30_000
"""Firings of an iteration up to which liveness is decided by executing it before anything else."""

EXECUTION_LIMIT = 1_000_000
"""Steps in which liveness is decided by executing an iteration that is longer than that."""


@dataclass(frozen=True, slots=True)
class Step:
    """A firing on a critical cycle, and what the next one waits for.

    `phase` counts from 0. `channel` is the one through which the next firing waits: for its tokens,
    or, if `for_space`, for room in it. It is None where the next firing is the actor's own and
    waits for this one to start or end.
    """

    actor: str
    phase: int
    channel: str | None
    for_space: bool


@dataclass(frozen=True, slots=True)
class Throughput:
    """The exact period (0: unbounded throughput) and a cycle of firings that takes that long.

    `critical` is empty if the period is 0, or if it was found by following the execution.
    """

    period: Fraction
    critical: tuple[Step, ...]


def throughput(graph: Graph, method: Method = "auto", effort: int = EFFORT) -> Throughput:
    """The period of `graph`, in the unit of its execution times, per iteration of smallest size.

    `method` chooses how: `cycle ratio` raises K step by step, `expansion` takes all firings at
    once, `state space` follows the execution, `auto` takes the quickest that applies. All give the
    same period. `effort` bounds the firings and constraints that are looked at together.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError` (`PeriodBoundsError` if the
    graph is live), and `ValueError` if the method does not apply because firings may overtake each
    other.
    """
    repetitions = repetition_vector(graph)
    lowered = lower(graph)
    counts = [repetitions[actor.name] for actor in graph.actors]
    unordered = overtaking(lowered)
    if method in ("cycle ratio", "expansion") and unordered:
        raise ValueError(f"firings of {lowered.names[min(unordered)]!r} may overtake each other")
    _require_live(graph, lowered, counts)
    if not unordered and method != "state space":
        return _by_cycle_ratio(lowered, counts, method, effort)
    found: list[Throughput | PeriodBoundsError] = []
    for part, members in components(lowered):
        own = [counts[a] for a in members]
        try:
            if method == "state space" or unordered & set(members):
                found.append(Throughput(_by_execution(part, own), ()))
            else:
                found.append(_by_cycle_ratio(part, own, method, effort))
        except PeriodBoundsError as error:
            found.append(error)
    return _slowest(found)


def _slowest(parts: Sequence[Throughput | PeriodBoundsError]) -> Throughput:
    """What holds a graph of these components. Raises `PeriodBoundsError`."""
    known = [part for part in parts if isinstance(part, Throughput)]
    slowest = max(known, key=lambda part: part.period, default=Throughput(Fraction(0), ()))
    unknown = [part for part in parts if isinstance(part, PeriodBoundsError)]
    if all(part.at_most is not None and part.at_most <= slowest.period for part in unknown):
        return slowest
    most = [part.at_most for part in unknown if part.at_most is not None]
    raise PeriodBoundsError(
        str(unknown[0]),
        max(slowest.period, *(part.at_least for part in unknown)),
        max(slowest.period, *most) if len(most) == len(unknown) else None,
    )


def _require_live(graph: Graph, lowered: Lowered, counts: Sequence[int]) -> None:
    """Raises `DeadlockError`, and `TooLargeError` if it cannot be told."""
    firings = sum(q * len(times) for q, times in zip(counts, lowered.times, strict=True))
    if firings > EXECUTED and critical.has_schedule(lowered, counts):
        return
    try:
        deadlock = check_liveness(graph, EXECUTION_LIMIT)
    except TooLargeError:
        links = critical.cycle_of_deadlock(lowered, counts)
        if links:
            around = ", ".join(dict.fromkeys(repr(lowered.names[link.actor]) for link in links))
            raise DeadlockError(f"deadlock: {around} wait for each other") from None
        return
    if deadlock is not None:
        raise DeadlockError(str(deadlock))


def _by_execution(part: Lowered, counts: Sequence[int]) -> Fraction:
    try:
        return selftimed.period(part, counts)
    except TooLargeError as error:
        least = critical.busiest(part, counts).period or Fraction(0)
        raise PeriodBoundsError(str(error), least, None) from None


def overtaking(graph: Lowered) -> set[int]:
    """Actors of which a firing may end before one that started earlier."""
    sequential = {arc.source for arc in graph.arcs if event_graph.is_sequential(arc)}
    return {
        actor
        for actor, times in enumerate(graph.times)
        if actor not in sequential and len(set(times)) > 1
    }


def _by_cycle_ratio(
    graph: Lowered, repetitions: Sequence[int], method: Method, effort: int
) -> Throughput:
    growth: dict[Method, Growth] = {"cycle ratio": "step by step", "expansion": "at once"}
    found = critical_cycle(graph, repetitions, growth.get(method, "auto"), effort)
    assert found.period is not None  # noqa: S101 (the graph is live)
    return Throughput(found.period, tuple(_step(graph, link) for link in found.links))


def _step(graph: Lowered, link: Link) -> Step:
    phase = link.source_firing % len(graph.times[link.actor])
    arc = graph.arcs[link.arc] if link.arc >= 0 else None
    channel = arc.channel.name if arc is not None and arc.channel is not None else None
    for_space = arc is not None and arc.origin is Origin.SPACE
    return Step(graph.names[link.actor], phase, channel, for_space)


def components(graph: Lowered) -> list[tuple[Lowered, list[int]]]:
    """The strongly connected components that contain a cycle, with the numbers of their actors."""
    from scipy.sparse import coo_array  # noqa: PLC0415 (slow to import; few graphs need it)
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    if not graph.arcs:
        return []
    ends = ([arc.source for arc in graph.arcs], [arc.target for arc in graph.arcs])
    size = len(graph.names)
    matrix = coo_array(([1] * len(graph.arcs), ends), shape=(size, size)).tocsr()
    _, label = connected_components(matrix, directed=True, connection="strong")
    members: dict[int, list[int]] = {}
    inside: dict[int, list[Arc]] = {}
    for actor in range(size):
        members.setdefault(int(label[actor]), []).append(actor)
    for arc in graph.arcs:
        if label[arc.source] == label[arc.target]:
            inside.setdefault(int(label[arc.source]), []).append(arc)
    return [
        (_part(graph, members[component], arcs), members[component])
        for component, arcs in sorted(inside.items())
    ]


def _part(graph: Lowered, members: list[int], arcs: list[Arc]) -> Lowered:
    number = {actor: i for i, actor in enumerate(members)}
    return Lowered(
        tuple(graph.names[a] for a in members),
        tuple(graph.times[a] for a in members),
        tuple(
            Arc(
                number[arc.source],
                number[arc.target],
                arc.production,
                arc.consumption,
                arc.tokens,
                arc.origin,
                arc.channel,
            )
            for arc in arcs
        ),
    )
