"""Channels in series, of whose capacities only the sum counts.

Where an actor consumes and produces the same number of tokens in every firing, and all its firings
take the same time, a firing that waits for room through both its input and its output channel does
not distinguish room in the one from room in the other: what one gains, the other may lose. So a
cycle of waits through such channels persists for every way to divide the room between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

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
