"""The smallest capacities against all distributions, each executed."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.buffers.capacities import CapacitySearch, Unit
from csdf.buffers.storage import unbounded, with_capacities
from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.model.graph import Actor, Channel, Graph
from tests.csdf import brute_force, oracle
from tests.csdf.graphs import consistent_graphs, rates
from tests.effort import examples


@st.composite
def pipelines(draw: st.DrawFn) -> Graph:
    """A chain of actors, most of which take and put as many tokens in each firing as in any other.

    Some have a second way past the next ones, so that room in several channels counts together.
    """
    actors, channels = [], []
    count = draw(st.integers(3, 5))
    cycles = [draw(st.sampled_from((1, 1, 1, 2))) for _ in range(count)]
    for i in range(count):
        times = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
        if draw(st.booleans()):
            times = [times[0]] * len(times)
        actors.append(
            Actor(f"a{i}", tuple(map(Fraction, times)), draw(st.sampled_from((1, 1, None))))
        )
    ways = [(i, i + 1) for i in range(count - 1)]
    ways += draw(st.lists(st.sampled_from([(0, 2), (1, 3 % count), (count - 1, 0)]), max_size=1))
    for i, (s, t) in enumerate(ways):
        one, other = actors[s].phases * cycles[s], actors[t].phases * cycles[t]
        grain = draw(st.integers(1, 2))
        total = grain * math.lcm(one, other)
        sides = []
        for actor, own in ((s, one), (t, other)):
            alike = (total // own,) * actors[actor].phases
            lumpy = draw(rates(actors[actor].phases, total // cycles[actor]))
            sides.append(draw(st.sampled_from((alike, alike, lumpy))))
        tokens = draw(st.sampled_from((0, 0, 0, 1))) if s < t else 2 * total
        channels.append(Channel(f"c{i}", f"a{s}", f"a{t}", sides[0], sides[1], tokens))
    return Graph("pipeline", tuple(actors), tuple(channels))


@st.composite
def sizable_graphs(draw: st.DrawFn) -> Graph:
    """Live if nothing is bounded; one to five channels to size, of one to three bytes per token."""
    found = draw(st.one_of(consistent_graphs(3, 5), pipelines()))
    weighed = tuple(replace(c, token_bytes=draw(st.integers(1, 3))) for c in found.channels)
    found = replace(found, channels=weighed)
    assume(1 <= len(unbounded(found)) <= 5)
    assume(check_liveness(found) is None)
    return found


def distributions(found: Graph, names: list[str], cost: list[int], size: int) -> int:
    """How many there are, about."""
    count, places = 1.0, len(names)
    start = sum(found.channel[n].initial_tokens * c for n, c in zip(names, cost, strict=True))
    for i, own in enumerate(cost, 1):
        count *= (size - start + own * places) / own / i
    return round(count)


EFFORT = 5000
"""Where firings overtake each other, a search that does not end soon would take a minute."""


@pytest.mark.parametrize("unit", ["tokens", "bytes"])
@examples(9)
@given(sizable_graphs())
def test_fronts(unit: Unit, found: Graph) -> None:
    names = unbounded(found)
    cost = [found.channel[name].token_bytes if unit == "bytes" else 1 for name in names]
    search = CapacitySearch(found, unit=unit, effort=EFFORT)
    try:
        front = search.front()
    except CsdfError:  # more room always helps
        times = sum((t for a in found.actors for t in a.execution_times), Fraction(0))
        front = search.front(max(Fraction(1), times))
    assume(front.complete or not search.overtakes)
    assert front.complete
    size = front.points[-1].size
    assume(distributions(found, names, cost, size) <= 400)
    best = brute_force.shortest(found, names, cost, size)
    assume(best is not None)
    assert best is not None
    expected = brute_force.front(best)
    assert [(point.size, point.period) for point in front.points] == expected
    for point in front.points:
        capacities = [point.capacities[name] for name in names]
        assert sum(n * c for n, c in zip(capacities, cost, strict=True)) == point.size
        assert oracle.period(with_capacities(found, point.capacities)) == point.period
    live = CapacitySearch(found, unit=unit, effort=EFFORT).smallest_live()
    assert (live.exact, live.point.size) == (True, expected[0][0])
    for size, period in expected:
        smallest = CapacitySearch(found, unit=unit, effort=EFFORT).smallest(period)
        assert smallest.at_least <= size <= smallest.point.size
        assert smallest.exact or search.overtakes
        assert smallest.point.period <= period
