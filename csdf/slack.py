"""How much each actor has to spare: what may take longer without lengthening the period.

The **slack** of an actor is by how much any one of its firings may take longer, once per iteration,
before the period grows: the least sum of floats of any cycle through one of its firings
(`csdf.expansion`). Actors of the critical cycle have none; an actor on no cycle has no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from csdf.errors import TooLargeError
from csdf.expansion import expand
from csdf.graph import Graph

WORK_LIMIT = 20_000_000
"""Firings × constraints beyond which it is not computed."""


def slack(graph: Graph, work_limit: int = WORK_LIMIT) -> Mapping[str, Fraction | None]:
    """Actor → its slack, None if unlimited. Raises as `expand` does, and `TooLargeError`."""
    expansion = expand(graph)
    work = expansion.events.nodes * len(expansion.events.source)
    if work > work_limit:
        raise TooLargeError(
            f"the slack of {expansion.events.nodes} firings takes {work} steps; "
            f"at most {work_limit} are allowed"
        )
    found: dict[str, Fraction | None] = {}
    for actor in expansion.actors:
        floats = [expansion.least_float(firing, firing) for firing in expansion.firings(actor)]
        found[actor] = min((one for one in floats if one is not None), default=None)
    return found
