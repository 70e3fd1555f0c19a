"""All distributions of capacities up to some size, each executed by the plain oracle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from csdf.buffers.storage import with_capacities
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf import oracle


def distributions(
    graph: Graph, names: Sequence[str], cost: Sequence[int], most: int
) -> Iterator[tuple[int, dict[str, int]]]:
    """(size, channel → capacity) of all that cost `most` or less; a token's cost is 1 or more."""
    if not names:
        yield 0, {}
        return
    capacity = graph.channel[names[0]].initial_tokens
    while capacity * cost[0] <= most:
        own = capacity * cost[0]
        for size, room in distributions(graph, names[1:], cost[1:], most - own):
            yield own + size, {names[0]: capacity, **room}
        capacity += 1


def shortest(
    graph: Graph, names: Sequence[str], cost: Sequence[int], most: int
) -> dict[int, Fraction] | None:
    """Size → the shortest period of any live distribution of that size; None if unknown."""
    best: dict[int, Fraction] = {}
    for size, room in distributions(graph, names, cost, most):
        candidate = with_capacities(graph, room)
        if oracle.executes(candidate, repetition_vector(candidate)):
            own = oracle.period(candidate)
            if own is None:
                return None
            best[size] = min(best.get(size, own), own)
    return best


def front(best: dict[int, Fraction]) -> list[tuple[int, Fraction]]:
    """(size, period) where nothing smaller is as fast."""
    found: list[tuple[int, Fraction]] = []
    for size in sorted(best):
        if not found or best[size] < found[-1][1]:
            found.append((size, best[size]))
    return found
