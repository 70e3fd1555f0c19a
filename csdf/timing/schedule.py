"""When every firing starts: a schedule that repeats itself after the period.

A **periodic schedule** gives each firing of an iteration a start time; firing k of iteration n
starts at start(k) + n × λ. The earliest such schedule at the graph's own period is as fast as
self-timed execution, and needs no more room in any channel than its capacity
(`csdf.timing.expansion`).

Where firings may overtake each other, there need not be one. But what self-timed execution does
over and over again (`csdf.timing.selftimed`) is a schedule of several iterations; it can be kept
from the first iteration on, when all initial tokens have been there for ever.

Every start of a self-timed execution, until a state comes back: for firings that overtake.

Where firings may overtake each other (`csdf.timing.expansion`), who waits for whom is decided only
as they go. So the execution is followed instant by instant (`csdf.timing.selftimed`) until tokens,
phases and what is left of the firings under way are what they were before. From then on all of it
repeats itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import OvertakingError
from csdf.execution.static_orders import Ordered, ordered
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.expansion import expand
from csdf.timing.selftimed import record

FIRING_LIMIT = 1_000_000
"""Firings after which an execution is taken not to recur."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actor → start times of its firings in the first `iterations`, which is 1 unless firings may
    overtake. After them all comes again, `iterations` × `period` later. The earliest start is 0.
    """

    period: Fraction
    starts: Mapping[str, tuple[Fraction, ...]]
    iterations: int = 1


def periodic_schedule(graph: Graph | Ordered, period: Fraction | None = None) -> Schedule:
    """The earliest schedule with `period` (None: the shortest that the graph can keep).

    On processors, it keeps to their orders; firings are in the order of their iteration.

    Raises as `csdf.timing.expansion.expand` does: `OvertakingError` only if a period is given, for
    a pipelined order, or if the execution does not recur.
    """
    placed = graph if isinstance(graph, Ordered) else ordered(graph, {})
    try:
        found = expand(placed.graph, period)
    except OvertakingError:
        recurring = None
        if period is None and not any(placed.fired.values()):
            recurring = _recurring(placed.graph)
        if recurring is None:
            raise
        return recurring
    lengths = {name: len(found.firings(name)) for name in found.actors}
    # Firing i of the expansion, which comes after the prologue, is number i + fired of all.
    numbers = [divmod(i + placed.fired[a], n) for a, n in lengths.items() for i in range(n)]
    starts: dict[str, list[Fraction]] = {name: [Fraction(0)] * n for name, n in lengths.items()}
    earliest = iter(found.earliest([iteration for iteration, _ in numbers]))
    for name in found.actors:
        for firing in found.firings(name):
            starts[name][numbers[firing][1]] = next(earliest)
    return Schedule(found.period, {name: tuple(own) for name, own in starts.items()})


def _recurring(graph: Graph) -> Schedule | None:
    first = graph.actors[0].name
    found = record(graph, repetition_vector(graph), first, FIRING_LIMIT)
    if not found.length:
        return None
    since = max(found.recurs.values())
    starts = {
        name: [found.start(name, since * per + i) for i in range(found.length * per)]
        for name, per in found.per_iteration.items()
    }
    earliest = min(map(min, starts.values()))
    shifted = {name: tuple(start - earliest for start in own) for name, own in starts.items()}
    return Schedule(found.turn / found.length, shifted, found.length)
