"""When every firing starts: a schedule that repeats itself after the period.

A **periodic schedule** gives each firing of an iteration a start time; firing k of iteration n
starts at start(k) + n × λ. The earliest such schedule at the graph's own period is as fast as
self-timed execution, and needs no more room in any channel than its capacity (`csdf.expansion`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from csdf.expansion import expand
from csdf.graph import Graph
from csdf.orders import Ordered, ordered


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actor → start times of its firings in iteration 0; those of iteration n are n × `period`
    later. The earliest start is 0.
    """

    period: Fraction
    starts: Mapping[str, tuple[Fraction, ...]]


def periodic_schedule(graph: Graph | Ordered, period: Fraction | None = None) -> Schedule:
    """The earliest schedule with `period` (None: the shortest that the graph can keep).

    On processors, it keeps to their orders; firings are in the order of their iteration.

    Raises as `csdf.expansion.expand` does.
    """
    placed = graph if isinstance(graph, Ordered) else ordered(graph, {})
    found = expand(placed.graph, period)
    lengths = {name: len(found.firings(name)) for name in found.actors}
    # Firing i of the expansion, which comes after the prologue, is number i + fired of all.
    numbers = [divmod(i + placed.fired[a], n) for a, n in lengths.items() for i in range(n)]
    starts: dict[str, list[Fraction]] = {name: [Fraction(0)] * n for name, n in lengths.items()}
    earliest = iter(found.earliest([iteration for iteration, _ in numbers]))
    for name in found.actors:
        for firing in found.firings(name):
            starts[name][numbers[firing][1]] = next(earliest)
    return Schedule(found.period, {name: tuple(own) for name, own in starts.items()})
