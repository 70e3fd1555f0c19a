"""How much each actor has to spare: what may take longer without lengthening the period.

The **slack** of an actor is by how much any one of its firings may take longer, once per iteration,
before the period grows: the least sum of floats of any cycle through one of its firings
(`csdf.expansion`). Actors of the critical cycle have none; an actor on no cycle has no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from csdf.consistency import firings, repetition_vector
from csdf.errors import TooLargeError
from csdf.expansion import expand
from csdf.graph import Graph

WORK_LIMIT = 20_000_000
"""Firings × constraints beyond which it is not computed."""


def slack(
    graph: Graph, work_limit: int = WORK_LIMIT, period: Fraction | None = None
) -> Mapping[str, Fraction | None]:
    """Actor → its slack, None if unlimited; `period` is the graph's, where it is known.

    Raises as `expand` does, and `TooLargeError`.
    """
    count = firings(graph, repetition_vector(graph))
    # Every firing has a constraint at least, so this is known without making them all.
    _check(count, count, work_limit)
    expansion = expand(graph, shortest=period)
    _check(count, len(expansion.events.source), work_limit)
    found: dict[str, Fraction | None] = {}
    for actor in expansion.actors:
        floats = [expansion.least_float(firing, firing) for firing in expansion.firings(actor)]
        found[actor] = min((one for one in floats if one is not None), default=None)
    return found


def _check(count: int, constraints: int, limit: int) -> None:
    if count * constraints > limit:
        raise TooLargeError(
            f"the slack of {count} firings takes {count * constraints} steps or more; "
            f"at most {limit} are allowed"
        )
