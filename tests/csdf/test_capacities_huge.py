"""Numbers near and beyond 64 bits: capacities come out as with small ones."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from csdf.buffers.capacities import CapacitySearch
from csdf.buffers.storage import unbounded
from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.model.graph import Graph
from tests.csdf.graphs import consistent_graphs, graph, may_overtake
from tests.effort import examples


def scaled(found: Graph, tokens: int, time: int) -> Graph:
    """With so many times the tokens in everything, and so many times as slow."""
    return replace(
        found,
        actors=tuple(
            replace(a, execution_times=tuple(t * time for t in a.execution_times))
            for a in found.actors
        ),
        channels=tuple(
            replace(
                c,
                production=tuple(rate * tokens for rate in c.production),
                consumption=tuple(rate * tokens for rate in c.consumption),
                initial_tokens=c.initial_tokens * tokens,
                capacity=None if c.capacity is None else c.capacity * tokens,
            )
            for c in found.channels
        ),
    )


def front(found: Graph) -> list[tuple[int, Fraction]]:
    points = CapacitySearch(found, effort=3000).front()
    assert points.complete
    return [(point.size, point.period) for point in points.points]


FACTORS = st.sampled_from((10**9, 2**57 + 1, 2**61 - 1, 10**25))


@examples(12)
@given(consistent_graphs(), FACTORS, st.sampled_from((1, 10**19)))
def test_they_change_nothing_but_the_scale(found: Graph, tokens: int, time: int) -> None:
    assume(unbounded(found))
    assume(not may_overtake(found))
    assume(check_liveness(found) is None)
    try:
        expected = front(found)
    except CsdfError:  # more room always helps
        reject()
    assert front(scaled(found, tokens, time)) == [
        (size * tokens, period * time) for size, period in expected
    ]


@pytest.mark.parametrize("many", [10**18, 2**61, 2**63 - 1, 2**63, 10**30])
@pytest.mark.parametrize("room", [5, None])
def test_what_nobody_waits_for_costs_nothing(many: int, room: int | None) -> None:
    found = graph(
        {"A": (3,), "B": (2, 5)},
        ("A", "B", (2,), (3, 1)),
        ("B", "A", (1, 3), (2,), many, None if room is None else many + room),
        ("A", "A", (1,), (1,), many),
    )
    base = many if room is None else 0  # that channel is sized too
    points = CapacitySearch(found).front().points
    assert [(p.size - base, p.period) for p in points] == [(4, 10), (5, 8), (6, 7)]
