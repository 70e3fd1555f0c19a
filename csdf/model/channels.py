"""Capacities written as channels, and back: SDF3 has no other words for them.

A channel of bounded capacity is then two, in opposite directions and with each other's rates; the
reverse one starts with as many tokens as there are free places.

Channels in series, of whose capacities only the sum counts.

Where an actor consumes and produces the same number of tokens in every firing, and all its firings
take the same time, a firing that waits for room through both its input and its output channel does
not distinguish room in the one from room in the other: what one gains, the other may lose. So a
cycle of waits through such channels persists for every way to divide the room between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from csdf.model.graph import Channel, Graph
from csdf.model.lowered import Lowered


def pairs(graph: Lowered, sized: Iterable[int]) -> set[tuple[int, int]]:
    """Return the pairs of `sized` arcs in series: the source of the first is the second's target.

    `sized` are arcs of free room, which run against their channels.
    """
    arriving: dict[int, list[int]] = {}
    leaving: dict[int, list[int]] = {}
    for number in sized:
        arc = graph.arcs[number]
        grain = math.gcd(*arc.production, *arc.consumption)
        if len(set(graph.times[arc.source])) == 1 and set(arc.production) == {grain}:
            arriving.setdefault(arc.source, []).append(number)
        if set(arc.consumption) == {grain}:
            leaving.setdefault(arc.target, []).append(number)
    return {
        (number, following)
        for actor, numbers in arriving.items()
        for number in numbers
        for following in leaving.get(actor, [])
    }


def passages(
    arcs: Sequence[int], series: Collection[tuple[int, int]]
) -> dict[tuple[int, ...], list[int]]:
    """Return the series that a cycle of `arcs` passes only as a whole → where it leaves each."""
    runs = _runs(arcs, series)
    alone = set(range(len(arcs))) - {i for run in runs for i in run}
    spoiled = {arcs[i] for i in alone}
    found: dict[tuple[int, ...], list[int]] = {}
    for run in runs:
        found.setdefault(tuple(arcs[i] for i in run), []).append(run[-1])
    while True:
        ways = Counter(arc for passage in found for arc in passage)
        bad = [one for one in found if any(ways[arc] > 1 or arc in spoiled for arc in one)]
        if not bad:
            return found
        for one in bad:
            spoiled.update(one)
            del found[one]


def _runs(arcs: Sequence[int], series: Collection[tuple[int, int]]) -> list[list[int]]:
    """Return the runs of two or more places of the cycle whose arcs are in series."""
    count = len(arcs)
    joined = [(arcs[i], arcs[(i + 1) % count]) in series for i in range(count)]
    if not any(joined) or all(joined):
        return []
    found: list[list[int]] = []
    start = joined.index(False) + 1
    run: list[int] = []
    for i in (place % count for place in range(start, start + count)):
        run.append(i)
        if not joined[i]:
            if len(run) > 1:
                found.append(run)
            run = []
    return found


def mirrors(graph: Graph) -> dict[str, Channel]:
    """Reverse channels that stand for a capacity → the channels that they bound.

    The reverse one is recognised by a name that extends the other's, or by coming later and
    starting with tokens where the other has none.
    """
    by_shape: dict[tuple[object, ...], list[Channel]] = {}
    bounds: dict[str, Channel] = {}
    taken: set[str] = set()
    for later in graph.channels:
        if later.source == later.target:
            continue
        shape = (later.target, later.source, later.consumption, later.production)
        for earlier in by_shape.get(shape, []):
            if earlier.name in taken:
                continue
            extends = later.name.startswith(earlier.name)
            if extends or (later.initial_tokens and not earlier.initial_tokens):
                bounds[later.name] = earlier
            elif earlier.name.startswith(later.name):
                bounds[earlier.name] = later
            else:
                continue
            taken |= {earlier.name, later.name}
            break
        own = (later.source, later.target, later.production, later.consumption)
        by_shape.setdefault(own, []).append(later)
    return bounds


def folded(graph: Graph) -> Graph:
    """The same graph with capacities instead of the reverse channels that stand for them."""
    bounds = {
        name: bounded
        for name, bounded in mirrors(graph).items()
        if graph.channel[name].capacity is None
    }
    room: dict[str, int] = {}
    for name, bounded in bounds.items():
        places = graph.channel[name].initial_tokens + bounded.initial_tokens
        room[bounded.name] = places if bounded.capacity is None else min(bounded.capacity, places)
    channels = tuple(
        replace(channel, capacity=room.get(channel.name, channel.capacity))
        for channel in graph.channels
        if channel.name not in bounds
    )
    return replace(graph, channels=channels)
