"""How many iterations lie between a source's firing and what the sink makes of it.

Initial tokens let a sink fire before the source does, so iteration k of the sink need not wait for
iteration k of the source at all. What comes in with the source's iteration k comes out with the
sink's iteration k + d, the first that cannot be completed without it: d is the least number of
iterations on any way of constraints from the one firing to the other.

Source: for SDF, the latency analyses of S. Stuijk, M. Geilen, T. Basten, "SDF³: SDF for free",
ACSD 2006, which count what the sink can fire while the source does not.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection

from csdf.timing.event_graph import EventGraph


def iterations_apart(
    events: EventGraph, source: int, sink: int, without: Collection[int] = ()
) -> int | None:
    """The least sum of delays on a way from firing `source` to `sink`; None if there is no way.

    `events` has all firings of an iteration, so that delays are whole and not negative. Constraints
    that come from the arcs `without` do not count.
    """
    leaving: list[list[tuple[int, int]]] = [[] for _ in range(events.nodes)]
    columns = (events.source, events.target, events.delay, events.arc)
    for before, after, delay, arc in zip(*(c.tolist() for c in columns), strict=True):
        if arc not in without:
            leaving[before].append((delay, after))
    found: dict[int, int] = {source: 0}
    queue = [(0, source)]
    while queue:
        delay, firing = heapq.heappop(queue)
        if firing == sink:
            return delay
        if delay > found[firing]:
            continue
        for more, after in leaving[firing]:
            if delay + more < found.get(after, delay + more + 1):
                found[after] = delay + more
                heapq.heappush(queue, (delay + more, after))
    return None
