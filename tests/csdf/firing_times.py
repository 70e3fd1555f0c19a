"""Constraints between single firings, counted one token at a time, to check schedules against.

Shares no code with the analyser. Only for graphs whose firings end in the order of their starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from csdf.model.graph import Graph

Key = tuple[str, str]
"""A counted place: ("tokens", channel), ("room", channel), ("turn", actor) or ("start", actor)."""

Time = Fraction | int
"""Whole times are integers in long executions, which takes a third of the time."""

LONG_AGO = -(10**9)


def _moves(graph: Graph) -> list[tuple[str, Sequence[int], str, Sequence[int], int]]:
    """Return (producer, rates, consumer, rates, initial number) of all tokens, room and turns."""
    found: list[tuple[str, Sequence[int], str, Sequence[int], int]] = []
    for c in graph.channels:
        found.append((c.source, c.production, c.target, c.consumption, c.initial_tokens))
        if c.capacity is not None:
            room = c.capacity - c.initial_tokens
            found.append((c.target, c.consumption, c.source, c.production, room))
    found += [
        (a.name, (1,), a.name, (1,), a.concurrency)
        for a in graph.actors
        if a.concurrency is not None
    ]
    return found


def waits(
    graph: Graph, repetitions: Mapping[str, int], iterations: int = 1
) -> list[tuple[tuple[str, int], tuple[str, int], Fraction]]:
    """Return ((actor, n), (actor, m), time): firing m starts at least `time` after the start of n.

    The firings m are those of `iterations` iterations, which are late enough that all firings that
    they wait for exist. Firings count from 0.
    """
    per = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
    most = max([there for *_, there in _moves(graph)], default=0)
    late = most + 2
    found = []
    for source, put, target, taken, there in _moves(graph):
        times = graph.actor[source].execution_times
        number, total, needed = 0, there, 0
        for m in range((late + iterations) * per[target]):
            needed += taken[m % len(taken)]
            if not taken[m % len(taken)] or m < late * per[target]:
                continue
            while total < needed:
                total += put[number % len(put)]
                number += 1
            found.append(((source, number - 1), (target, m), times[(number - 1) % len(times)]))
    for a in graph.actors:
        first = late * per[a.name]
        found += [
            ((a.name, m - 1), (a.name, m), Fraction(0))
            for m in range(first, first + iterations * per[a.name])
        ]
    return found


def longest(
    edges: Sequence[tuple[object, object, Fraction]], start: object | None = None
) -> dict[object, Fraction] | None:
    """The longest walk to each node, from `start` or anywhere; None if some cycle is positive."""
    nodes = {end for one in edges for end in one[:2]}
    found = dict.fromkeys(nodes, Fraction(0)) if start is None else {start: Fraction(0)}
    for _ in range(len(nodes) + 1):
        changed = False
        for source, target, weight in edges:
            if source in found and (target not in found or found[source] + weight > found[target]):
                found[target] = found[source] + weight
                changed = True
        if not changed:
            return found
    return None


def k_periodic_edges(
    graph: Graph,
    repetitions: Mapping[str, int],
    cycles: Mapping[str, int],
    period: Fraction,
) -> list[tuple[object, object, Fraction]]:
    """Constraints on the starts of the first K cycles of each actor, if all are K-periodic."""
    size = {a.name: cycles[a.name] * a.phases for a in graph.actors}
    turn = {name: period * cycles[name] / repetitions[name] for name in cycles}
    iterations = 1
    while any(iterations * repetitions[name] % k for name, k in cycles.items()):
        iterations += 1
    found: list[tuple[object, object, Fraction]] = []
    for (source, n), (target, m), time in waits(graph, repetitions, iterations):
        turns, i = divmod(n, size[source])
        later, j = divmod(m, size[target])
        weight = time + turns * turn[source] - later * turn[target]
        found.append(((source, i), (target, j), weight))
    return found


def after_iteration(
    graph: Graph, repetitions: Mapping[str, int], state: Mapping[Key, Sequence[Time]]
) -> dict[Key, list[Time]]:
    """Return the times in `state` after an iteration, which is executed instant by instant.

    `state` has the times, in the order of queues, at which tokens, room, turns and the last start
    are there. If it has no starts, nothing waits for them.
    """
    per = {a.name: repetitions[a.name] * a.phases for a in graph.actors}
    queues: dict[Key, list[Time]] = {("tokens", c.name): [] for c in graph.channels}
    queues |= {("room", c.name): [] for c in graph.channels if c.capacity is not None}
    queues |= {key: list(times) for key, times in state.items()}
    takes, gives = (
        {
            (a.name, i): [
                (queues[key], n, key) for key, n in of(graph, a.name, i).items() if key in queues
            ]
            for a in graph.actors
            for i in range(a.phases)
        }
        for of in (_taken, _given)
    )
    lasts = {
        (a.name, i): time.numerator if time.denominator == 1 else time
        for a in graph.actors
        for i, time in enumerate(a.execution_times)
    }
    fired = dict.fromkeys(per, 0)
    instants = {LONG_AGO, *(time for times in queues.values() for time in times)}
    while instants:
        now = min(instants)
        instants.remove(now)
        while able := next(
            (
                a
                for a in graph.actors
                if fired[a.name] < per[a.name]
                and all(
                    len(queue) >= number and all(time <= now for time in queue[:number])
                    for queue, number, _ in takes[a.name, fired[a.name] % a.phases]
                )
            ),
            None,
        ):
            phase = fired[able.name] % able.phases
            end = now + lasts[able.name, phase]
            for queue, number, _ in takes[able.name, phase]:
                del queue[:number]
            for queue, number, (kind, _) in gives[able.name, phase]:
                queue.extend([now if kind == "start" else end] * number)
            fired[able.name] += 1
            instants.add(end)
    assert fired == per
    return queues


def _taken(graph: Graph, actor: str, phase: int) -> dict[Key, int]:
    found: dict[Key, int] = {("turn", actor): 1, ("start", actor): 1}
    for c in graph.channels:
        if c.target == actor:
            found["tokens", c.name] = c.consumption[phase]
        if c.source == actor:
            found["room", c.name] = c.production[phase]
    return found


def _given(graph: Graph, actor: str, phase: int) -> dict[Key, int]:
    found: dict[Key, int] = {("turn", actor): 1, ("start", actor): 1}
    for c in graph.channels:
        if c.source == actor:
            found["tokens", c.name] = c.production[phase]
        if c.target == actor:
            found["room", c.name] = c.consumption[phase]
    return found
