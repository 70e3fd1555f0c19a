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


@dataclass(frozen=True, slots=True)
class Schedule:
    """Actor → start times of its firings in iteration 0; those of iteration n are n × `period`
    later. The earliest start is 0.
    """

    period: Fraction
    starts: Mapping[str, tuple[Fraction, ...]]


def periodic_schedule(graph: Graph, period: Fraction | None = None) -> Schedule:
    """The earliest schedule with `period` (None: the shortest that the graph can keep).

    Raises as `csdf.expansion.expand` does.
    """
    found = expand(graph, period)
    starts = {name: tuple(map(found.start, found.firings(name))) for name in found.actors}
    return Schedule(found.period, starts)
