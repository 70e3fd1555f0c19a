"""Firings that overlap: proved to be in order where they are, executed where they are not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.errors import CsdfError, OvertakingError
from csdf.execution.liveness import check_liveness
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.lowered import lower
from csdf.timing.expansion import expand
from csdf.timing.latency import Latency, latency
from csdf.timing.schedule import Schedule, periodic_schedule
from csdf.timing.slack import slack
from csdf.timing.throughput import overtaking, throughput
from tests.csdf import oracle
from tests.csdf.blocked import distance
from tests.csdf.graphs import consistent_graphs, graph
from tests.csdf.test_schedule import keeps_the_rules
from tests.effort import examples


def overlapping(found: Graph, concurrency: int) -> Graph:
    return replace(found, actors=tuple(replace(a, concurrency=concurrency) for a in found.actors))


@st.composite
def rings(draw: st.DrawFn) -> Graph:
    """Actors of several phases round a cycle with few tokens, so that they hold each other up."""
    times = draw(
        st.lists(
            st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=2, max_size=3
        ).filter(lambda all_: any(len(set(own)) > 1 for own in all_))
    )
    names = [f"a{i}" for i in range(len(times))]
    channels = [
        (name, after, (1,) * len(times[i]), (1,) * len(times[(i + 1) % len(names)]), tokens, None)
        for i, (name, after) in enumerate(zip(names, [*names[1:], names[0]], strict=True))
        for tokens in [draw(st.integers(0, 2)) if i else 1]
    ]
    return graph(dict(zip(names, times, strict=True)), *channels, concurrency=None)


def test_firings_that_are_proved_in_order_end_in_order() -> None:
    """And then the constraints give the period of an execution that counts tokens."""
    proved = list[bool]()

    @examples(25)
    @given(rings())
    def check(found: Graph) -> None:
        assert check_liveness(found) is None
        repetitions = repetition_vector(found)
        try:
            expansion = expand(found)
        except OvertakingError:
            proved.append(False)
            return
        proved.append(True)
        ends: dict[str, list[Fraction]] = {name: [] for name in found.actor}
        for actor, _, end in oracle.timed(found, repetitions, 8):
            ends[actor].append(end)
        assert all(a <= b for own in ends.values() for a, b in pairwise(own))
        assert expansion.period == throughput(found, "state space").period
        assert keeps_the_rules(found, periodic_schedule(found), 4)

    check()
    assert any(proved)


@examples(9)
@given(consistent_graphs(bounded=True), st.integers(2, 3), st.data())
def test_latency_is_that_of_an_execution_that_counts_tokens(
    some: Graph, concurrency: int, data: st.DataObject
) -> None:
    found = overlapping(some, concurrency)
    assume(check_liveness(found) is None)
    assume(overtaking(lower(found)))
    source, sink = (data.draw(st.sampled_from(sorted(found.actor))) for _ in range(2))
    try:
        result = latency(found, source, sink)
    except CsdfError:
        assume(False)
    assert result.distance == distance(found, source, sink)
    expected = plain(found, source, sink, 24 + result.distance)[:12]
    assert result.first == expected[0]
    assert result.steady is not None
    assert result.worst is not None
    assert result.steady <= result.worst
    assert max(expected) <= result.worst


def plain(found: Graph, source: str, sink: str, iterations: int) -> list[Fraction]:
    """By the oracle; the last ones would be others if the execution continued."""
    per = {a.name: repetition_vector(found)[a.name] * a.phases for a in found.actors}
    starts: dict[str, list[Fraction]] = {name: [] for name in per}
    ends: dict[str, list[Fraction]] = {name: [] for name in per}
    for actor, start, end in oracle.timed(found, repetition_vector(found), iterations):
        starts[actor].append(start)
        ends[actor].append(end)
    last = [max(ends[sink][k * per[sink] : (k + 1) * per[sink]]) for k in range(iterations)]
    later = distance(found, source, sink) or 0
    return [end - starts[source][k * per[source]] for k, end in enumerate(last[later:])]


@examples(9)
@given(consistent_graphs(bounded=True), st.integers(2, 3))
def test_a_schedule_of_several_iterations_keeps_the_rules(some: Graph, concurrency: int) -> None:
    found = overlapping(some, concurrency)
    assume(check_liveness(found) is None)
    assume(overtaking(lower(found)))
    try:
        schedule = periodic_schedule(found)
    except CsdfError:
        assume(False)
    assert schedule.period == throughput(found).period
    assert min(min(starts) for starts in schedule.starts.values()) == 0
    assert keeps_the_rules(found, schedule, 3)


def test_a_cycle_keeps_firings_in_order() -> None:
    """No self-channel, but one token goes round: A's firings do not even overlap."""
    found = graph(
        {"A": (5, 1), "B": (2,)},
        ("A", "B", (1, 1), (1,), 1),
        ("B", "A", (1,), (1, 1)),
        concurrency=None,
    )
    assert overtaking(lower(found)) == {0}
    assert expand(found).period == 10
    assert slack(found) == {"A": 0, "B": 0}


def test_a_later_firing_that_ends_first() -> None:
    """A's short phase overtakes its long one, and its token lets B fire first."""
    found = graph({"A": (5, 1), "B": (2,)}, ("A", "B", (1, 1), (1,), 0, 2), concurrency=2)
    with pytest.raises(OvertakingError, match="firings of actor 'A' may overlap"):
        expand(found)
    assert throughput(found).period == 5
    assert latency(found, "A", "B") == Latency("A", "B", 0, 7, 7, 7, None, None, None)
    two = {"A": (0, 4, 7, 7), "B": (5, 5, 8, 12)}
    assert periodic_schedule(found) == Schedule(Fraction(5), two, iterations=2)
    with pytest.raises(OvertakingError):
        periodic_schedule(found, Fraction(6))


def test_what_starts_without_end_has_no_latency() -> None:
    found = graph({"A": (2, 1), "B": (1,)}, ("A", "B", (1, 1), (1,)), concurrency=None)
    with pytest.raises(CsdfError, match="infinitely many firings start at one instant"):
        latency(found, "A", "B")
