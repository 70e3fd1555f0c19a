"""Compute a periodic schedule: a start time for every firing of an iteration.

A **periodic schedule** gives each firing of an iteration a start time; firing k of iteration n
starts at start(k) + n × λ. The earliest such schedule at the graph's own period is as fast as
self-timed execution, and needs no more room in any channel than its capacity
(`csdf.timing.expansion`).

If firings may overtake each other, there may be no such schedule. But what self-timed execution
repeats in the long run (`csdf.timing.selftimed`) is a schedule of several iterations, which can be
kept from the first iteration on if its initial tokens arrive early enough.
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
"""Firings after which the search for a recurrence ends."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Start times, by actor, of the firings of some `iterations`; the earliest start is 0.

    All of them repeat after `iterations` × `period`. There is one iteration unless firings may
    overtake each other.
    """

    period: Fraction
    starts: Mapping[str, tuple[Fraction, ...]]
    iterations: int = 1


def periodic_schedule(graph: Graph | Ordered, period: Fraction | None = None) -> Schedule:
    """Return the earliest schedule with `period` (None: the graph's shortest period).

    With static orders, the schedule keeps to them; start times are listed by iteration.

    Raises as `csdf.timing.expansion.expand` does, but `OvertakingError` only if a period is given,
    the orders are pipelined, or the execution does not recur.

    >>> from csdf import Actor, Channel
    >>> actors = Actor("a", (Fraction(2),), 1), Actor("b", (Fraction(3),), 1)
    >>> found = periodic_schedule(Graph("g", actors, (Channel("c", "a", "b", (1,), (1,)),)))
    >>> found.period, found.starts["b"]
    (Fraction(3, 1), (Fraction(2, 1),))
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
    # The expansion comes after the prologue, so its firing i is number i + fired in the execution.
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
