"""Channels in series, whose capacities only count together.

Where an actor takes and puts the same number of tokens in every firing, and all its firings take
the same time, room in the channel before it and room in the one behind it are the same to whoever
waits for room through both: by as many firings as there is more in one, less in the other will do.
So a cycle of waits that passes such channels one after the other holds for every way to share out
the room between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from csdf.lowered import Lowered


def pairs(graph: Lowered, sized: Iterable[int]) -> set[tuple[int, int]]:
    """(arc, next arc) of those `sized` that are in series: the one's source is the other's target.

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
    """Arcs in series that a cycle of `arcs` only ever passes together → where it leaves them."""
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
    """The places in the cycle that are in series, two or more together."""
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
