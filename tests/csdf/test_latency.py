"""Latency: self-timed against a plain execution, periodic against the schedules that exist."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Actor, Channel, Graph
from csdf.timing.latency import Latency, latency
from csdf.timing.throughput import throughput
from tests.csdf import oracle
from tests.csdf.blocked import distance
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.effort import examples


def plain(found: Graph, source: str, sink: str, iterations: int) -> list[Fraction]:
    """Latency of the first iterations, by the oracle's execution."""
    per_iteration = repetition_vector(found)
    starts: dict[str, list[Fraction]] = {name: [] for name in (source, sink)}
    ends: dict[str, list[Fraction]] = {name: [] for name in (source, sink)}
    later = distance(found, source, sink)
    assert later is not None
    for actor, start, end in oracle.timed(found, per_iteration, iterations + later):
        if actor in starts:
            starts[actor].append(start)
            ends[actor].append(end)
    per = {name: per_iteration[name] * found.actor[name].phases for name in (source, sink)}
    return [
        ends[sink][(n + later + 1) * per[sink] - 1] - starts[source][n * per[source]]
        for n in range(iterations)
    ]


@examples(30)
@given(consistent_graphs(bounded=True))
def test_self_timed_latency_is_that_of_a_plain_execution(some: Graph) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    for source in found.actor:
        for sink in found.actor:
            try:
                result = latency(found, source, sink)
            except CsdfError:
                continue
            assert result.distance == distance(found, source, sink)
            expected = plain(found, source, sink, 12)
            assert min(expected) >= found.actor[sink].execution_times[-1]
            assert result.first == expected[0]
            assert result.worst is not None
            assert max(expected) <= result.worst
            assert result.steady is not None
            assert result.steady <= result.worst
            assert result.periodic is not None
            assert result.minimal is not None
            assert result.minimal <= result.periodic <= result.steady


@examples(18)
@given(consistent_graphs(bounded=True))
def test_no_source_can_be_held_to_less_than_the_periodic_latency(some: Graph) -> None:
    """A channel back that lets the source start only `latency` before the sink's next end."""
    found = in_order(some)
    assume(check_liveness(found) is None)
    repetitions, period = repetition_vector(found), throughput(found).period
    for source in found.actor:
        for sink in found.actor:
            try:
                result = latency(found, source, sink)
            except CsdfError:
                continue
            assert result.periodic is not None
            assert result.minimal is not None
            slower = 2 * period + 100  # nothing else than the latency matters then
            for pace, wanted in ((period, result.periodic), (slower, result.minimal)):
                if not pace:
                    continue
                held = [
                    throughput(bound(found, repetitions, result, limit, pace)).period
                    for limit in (wanted, wanted - Fraction(1, 7))
                ]
                assert held[0] <= pace
                assert held[1] > pace


def bound(
    found: Graph,
    repetitions: dict[str, int],
    result: Latency,
    limit: Fraction,
    period: Fraction,
) -> Graph:
    """With a cycle that takes `period` per frame just if the latency is `limit`.

    Back from the sink's last firing to the source's first go `frames` tokens, and a delay that is
    what is left of the periods round the cycle.
    """
    source, sink = result.source, result.sink
    frames = max(0, -(-limit // period)) + 1
    wait = Actor("wait", ((frames + result.distance) * period - limit,))
    last = (0,) * (repetitions[sink] * found.actor[sink].phases - 1) + (1,)
    first = (1,) + (0,) * (repetitions[source] * found.actor[source].phases - 1)
    unrolled = unroll(found, repetitions)
    return Graph(
        "bound",
        (*unrolled.actors, wait),
        (
            *unrolled.channels,
            Channel("to wait", sink, "wait", last, (1,)),
            Channel("back", "wait", source, (1,), first, frames),
        ),
    )


def unroll(found: Graph, repetitions: dict[str, int]) -> Graph:
    """One cycle of phases per iteration."""
    return Graph(
        "unrolled",
        tuple(
            replace(a, execution_times=a.execution_times * repetitions[a.name])
            for a in found.actors
        ),
        tuple(
            replace(
                c,
                production=c.production * repetitions[c.source],
                consumption=c.consumption * repetitions[c.target],
            )
            for c in found.channels
        ),
    )


def test_a_pipeline_with_room_for_two() -> None:
    """A waits for room, so its frames lie in the channel while B works."""
    found = graph({"A": (2,), "B": (5,)}, ("A", "B", (1,), (1,), 0, 2))
    assert latency(found, "A", "B") == Latency("A", "B", 0, 7, 10, 10, None, 7, 7)


def test_a_source_that_nothing_slows_down() -> None:
    result = latency(graph({"A": (2,), "B": (5,)}, ("A", "B", (1,), (1,))), "A", "B")
    assert (result.first, result.steady, result.worst, result.periodic) == (7, None, None, 7)
    assert result.reason is not None
    assert "nothing slows 'A' down to the pace of 'B'" in result.reason


def test_a_source_slower_than_its_sink_needs_no_bound() -> None:
    result = latency(graph({"A": (5,), "B": (2,)}, ("A", "B", (1,), (1,))), "A", "B")
    assert (result.first, result.steady, result.worst, result.periodic) == (7, 7, 7, 7)


def test_against_the_direction_there_is_none() -> None:
    found = graph({"A": (2,), "B": (5,)}, ("A", "B", (1,), (1,)))
    with pytest.raises(CsdfError, match="no path leads from 'B' to 'A'"):
        latency(found, "B", "A")
    with pytest.raises(
        CsdfError, match="'C' is not an actor of the graph; its actors are 'A', 'B'"
    ):
        latency(found, "A", "C")


def test_what_does_not_recur_soon_is_said() -> None:
    found = graph({"A": (2,), "B": (5,)}, ("A", "B", (1,), (1,), 0, 2))
    result = latency(found, "A", "B", work_limit=1)
    assert (result.first, result.steady) == (7, None)
    assert result.reason == "the execution did not recur within 1 iterations"


def test_initial_tokens_between_are_iterations() -> None:
    """B's iteration 2 is the first that works on what A makes in its iteration 0."""
    found = graph({"A": (3,), "B": (5,)}, ("A", "B", (1,), (1,), 2, 3))
    result = latency(found, "A", "B")
    assert (result.distance, result.first, result.steady, result.minimal) == (2, 15, 15, 8)
    back = latency(found, "B", "A")
    assert (back.distance, back.first) == (1, 8)


def test_a_source_and_a_sink_that_fire_often_in_an_iteration() -> None:
    """From the first of two firings of A to the end of the last of three of B."""
    found = graph({"A": (3,), "B": (2,)}, ("A", "B", (3,), (2,), 0, 6))
    result = latency(found, "A", "B")
    assert (result.first, result.minimal) == (10, 10)


def test_minimal_latency_is_that_of_a_source_that_takes_its_time() -> None:
    """C waits for what B makes of the frame before, which at the graph's own pace comes late."""
    found = graph(
        {"A": (1,), "B": (20,), "C": (1,)},
        ("A", "B", (1,), (1,)),
        ("B", "C", (1,), (1,), 1),
        ("A", "C", (1,), (1,)),
    )
    several = replace(found.actor["B"], concurrency=4)
    found = replace(found, actors=(found.actors[0], several, found.actors[2]))
    result = latency(found, "A", "C")
    assert throughput(found).period == 5
    assert (result.distance, result.periodic, result.minimal) == (0, 17, 2)
