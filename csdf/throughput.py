"""The exact period of self-timed execution, and the cycle that holds it.

The period is the time of one iteration in the long run when every actor fires as soon as it can;
the throughput is 1 / period. It is the largest ratio of time to delay of any cycle of waiting
firings (`csdf.event_graph`, `csdf.cycle_ratio`); without such a cycle it is 0: there is no bound.

Expanding all firings of an iteration may take far more than is needed to find that cycle. So each
actor starts with K = 1 cycles of its phases, which gives the best strictly periodic schedule; if
the critical cycle of the event graph only binds because of that restriction, K is raised for its
actors, until it holds for every schedule (K-Iter of Bodin et al., DAC 2016). A cycle does so once
each K on it is a multiple of q / g, where g is the greatest common divisor of the repetition counts
q of the actors on it.

Cycle ratios presume that the firings of an actor end in the order in which they start. Where they
may overtake each other (phases of different times that may overlap), self-timed execution is
followed until a state comes back (`csdf.selftimed`), in each strongly connected component.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from csdf import event_graph, selftimed
from csdf.consistency import repetition_vector
from csdf.cycle_ratio import maximum_cycle_ratio
from csdf.errors import DeadlockError, TooLargeError
from csdf.event_graph import EventGraph
from csdf.graph import Graph
from csdf.liveness import check_liveness
from csdf.lowered import Arc, Lowered, Origin, lower

Method = Literal["auto", "cycle ratio", "expansion", "state space"]

NODE_LIMIT = 5_000_000
"""Firings in an event graph beyond which it is not built."""

EXPANSION_LIMIT = 100_000
"""Firings of an iteration up to which all are taken at once rather than K raised step by step."""

EXECUTION_LIMIT = 1_000_000
"""Steps in which liveness is decided by executing an iteration; where they do not suffice, a
schedule with a period is the proof of it."""


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


def throughput(graph: Graph, method: Method = "auto") -> Throughput:
    """The period of `graph`, in the unit of its execution times, per iteration of smallest size.

    `method` chooses how: `cycle ratio` raises K step by step, `expansion` takes all firings at
    once, `state space` follows the execution, `auto` takes the quickest that applies. All give the
    same period.

    Raises `InconsistentGraphError`, `DeadlockError`, `TooLargeError`, and `ValueError` if the
    method does not apply because firings may overtake each other.
    """
    repetitions = repetition_vector(graph)
    lowered = lower(graph)
    counts = [repetitions[actor.name] for actor in graph.actors]
    unordered = overtaking(lowered)
    if method in ("cycle ratio", "expansion") and unordered:
        raise ValueError(f"firings of {lowered.names[min(unordered)]!r} may overtake each other")
    try:
        deadlock = check_liveness(graph, EXECUTION_LIMIT)
        if deadlock is not None:
            raise DeadlockError(str(deadlock))
    except TooLargeError:
        if unordered or method == "state space":
            raise
    if not unordered and method != "state space":
        return _by_cycle_ratio(lowered, counts, method)
    found = []
    for part, members in components(lowered):
        own = [counts[a] for a in members]
        if method == "state space" or unordered & set(members):
            found.append(Throughput(selftimed.period(part, own), ()))
        else:
            found.append(_by_cycle_ratio(part, own, method))
    return max(found, key=lambda one: one.period, default=Throughput(Fraction(0), ()))


def overtaking(graph: Lowered) -> set[int]:
    """Actors of which a firing may end before one that started earlier."""
    sequential = {arc.source for arc in graph.arcs if event_graph.is_sequential(arc)}
    return {
        actor
        for actor, times in enumerate(graph.times)
        if actor not in sequential and len(set(times)) > 1
    }


@dataclass(frozen=True, slots=True)
class Link:
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
    links: tuple[Link, ...]


def critical_cycle(graph: Lowered, repetitions: Sequence[int], method: Method = "auto") -> Critical:
    """The period of a graph whose firings cannot overtake each other. Raises `TooLargeError`."""
    every = sum(q * len(times) for q, times in zip(repetitions, graph.times, strict=True))
    busiest = _busiest(graph, repetitions)
    least = busiest.period or Fraction(0)
    cycles = list(repetitions) if method == "expansion" else [1] * len(repetitions)
    while True:
        nodes = sum(k * len(times) for k, times in zip(cycles, graph.times, strict=True))
        if nodes > NODE_LIMIT:
            raise TooLargeError(
                f"the exact period needs the constraints between {nodes} firings of an iteration; "
                f"at most {NODE_LIMIT} are allowed"
            )
        events = event_graph.build(graph, repetitions, cycles)
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
            return busiest
        on_cycle = {_actor(events, int(events.source[edge])) for edge in result.cycle}
        common = math.gcd(*(repetitions[a] for a in on_cycle))
        wanted = {a: math.lcm(cycles[a], repetitions[a] // common) for a in on_cycle}
        if all(cycles[a] == k for a, k in wanted.items()):
            period = None if result.ratio is None else result.ratio * unit
            return Critical(period, tuple(_link(events, edge, cycles) for edge in result.cycle))
        if method == "auto" and every <= EXPANSION_LIMIT:
            cycles = list(repetitions)
            continue
        for actor, k in wanted.items():
            cycles[actor] = k


def _by_cycle_ratio(graph: Lowered, repetitions: Sequence[int], method: Method) -> Throughput:
    found = critical_cycle(graph, repetitions, method)
    steps = tuple(_step(graph, link) for link in found.links)
    if found.period is None:
        around = ", ".join(dict.fromkeys(repr(step.actor) for step in steps))
        raise DeadlockError(f"deadlock: {around} wait for each other")
    return Throughput(found.period, steps)


def _busiest(graph: Lowered, repetitions: Sequence[int]) -> Critical:
    """The actor that takes longest by itself, of those that fire one firing at a time.

    A bound from below that is often the period, and spares the search for it.
    """
    best = Fraction(0)
    links: tuple[Link, ...] = ()
    for number, arc in enumerate(graph.arcs):
        actor, phases = arc.source, len(graph.times[arc.source])
        period = repetitions[actor] * sum(graph.times[actor], Fraction(0))
        if period > best and event_graph.is_sequential(arc):
            best = period
            links = tuple(
                Link(number, actor, phase, (phase + 1) % phases, (1, 1)) for phase in range(phases)
            )
    return Critical(best, links)


def _actor(events: EventGraph, node: int) -> int:
    low, high = 0, len(events.first)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if events.first[middle] <= node else (low, middle)
    return low


def _link(events: EventGraph, edge: int, cycles: Sequence[int]) -> Link:
    source, target = int(events.source[edge]), int(events.target[edge])
    ends = _actor(events, source), _actor(events, target)
    return Link(
        int(events.arc[edge]),
        ends[0],
        source - events.first[ends[0]],
        target - events.first[ends[1]],
        (cycles[ends[0]], cycles[ends[1]]),
    )


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
