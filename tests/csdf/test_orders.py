"""Static orders: a graph with its orders does what an execution that enforces them does."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.errors import CsdfError, DeadlockError
from csdf.execution.liveness import check_liveness
from csdf.execution.static_orders import Entry, entry, ordered, with_orders
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.latency import latency
from csdf.timing.throughput import throughput
from tests.csdf.blocked import distance
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.csdf.oracle import Untimed
from tests.csdf.order_examples import Orders, pipelined
from tests.csdf.ordered_execution import Execution, execute
from tests.effort import examples


def plain(found: Graph, orders: Orders, more: int) -> Execution | None:
    shown = {p: [(e.actor, e.phase, e.offset) for e in order] for p, order in orders.items()}
    return execute(found, repetition_vector(found), shown, more)


@examples(22)
@given(consistent_graphs(bounded=True), st.data())
def test_the_graph_does_what_an_execution_that_keeps_the_orders_does(
    found: Graph, data: st.DataObject
) -> None:
    """The same period, or a deadlock in both; and the latency of every iteration, the first too."""
    assume(check_liveness(found) is None)
    orders = data.draw(pipelined(found))
    source, sink = (data.draw(st.sampled_from(sorted(found.actor))) for _ in range(2))
    later = distance(found, source, sink) or 0  # who just takes turns is in the same iteration
    expected = plain(found, orders, later)
    assume(expected is not None)
    assert expected is not None
    try:
        placed = ordered(found, orders)
        period = throughput(placed.graph).period
    except DeadlockError:
        assert expected.deadlocks
        return
    assert not expected.deadlocks
    assert period == expected.period
    try:
        result = latency(placed, source, sink)
    except CsdfError:  # no way from one to the other, or firings that overtake each other
        return
    latencies = plain_latencies(found, expected, source, sink, later)
    assert result.distance == later
    assert latencies[0] == result.first
    if result.worst is not None:
        assert max(latencies) == result.worst
        (a, b), (c, d) = expected.visits[source], expected.visits[sink]
        assert max(latencies[max(a, c) : max(a, c) + max(b - a, d - c) + 1]) == result.steady
        in_pace = len({to - from_ for from_, to in expected.visits.values()}) == 1
        if in_pace and result.periodic is not None:
            assert result.periodic <= result.steady  # all keep the pace of the graph


def plain_latencies(
    found: Graph, execution: Execution, source: str, sink: str, later: int
) -> list[Fraction]:
    repetitions = repetition_vector(found)
    per = {name: repetitions[name] * found.actor[name].phases for name in (source, sink)}
    begins = [start for start, _ in execution.firings[source][:: per[source]]]
    last = [end for _, end in execution.firings[sink]]
    ends = [max(last[k : k + per[sink]]) for k in range(0, len(last) - per[sink] + 1, per[sink])]
    return [end - begin for begin, end in zip(begins, ends[later:], strict=False)]


def test_entries_as_text() -> None:
    found = graph({"A": (1, 2), "B@1": (1,), "C[0]": (1,)})
    texts = ["A", "A@3", "A[1]", "A[1]@2", "B@1", "B@1@2", "C[0]", "C[0]@1"]
    entries = [entry(text, found) for text in texts]
    assert entries == [
        Entry("A"),
        Entry("A", 3),
        Entry("A", 0, 1),
        Entry("A", 2, 1),
        Entry("B@1"),
        Entry("B@1", 2),
        Entry("C[0]"),
        Entry("C[0]", 1),
    ]
    assert [str(one) for one in entries] == texts


@examples(45)
@given(consistent_graphs(), st.randoms(use_true_random=False))
def test_one_processor_for_all_takes_the_sum_of_all(found: Graph, random: object) -> None:
    assume(check_liveness(found) is None)
    repetitions = repetition_vector(found)
    times = [sum(a.execution_times) * repetitions[a.name] for a in found.actors]
    order = sequence(found, random)
    assert throughput(with_orders(found, {"P": order})).period == sum(times)
    if len(found.actors) > 1:
        alone = {a.name: [n for n in order if n == a.name] for a in found.actors}
        apart = with_orders(found, alone)
        assert throughput(apart).period == throughput(in_order(found)).period


def sequence(found: Graph, random: object) -> list[str]:
    """An order in which one iteration can be executed, otherwise any."""
    state, order = Untimed(found), []
    repetitions = repetition_vector(found)
    while True:
        able = [
            a.name
            for a in found.actors
            if state.fired[a.name] < repetitions[a.name] * a.phases and not state.lacking(a.name)
        ]
        if not able:
            return order
        order.append(random.choice(able))  # type: ignore[attr-defined]
        state.fire(order[-1])


def test_a_processor_that_two_actors_share() -> None:
    """A and C share a processor; B works meanwhile, if there is room for two frames."""
    found = graph(
        {"A": (2,), "B": (4,), "C": (3,)},
        ("A", "B", (1,), (1,), 0, 2),
        ("B", "C", (1,), (1,), 0, 2),
    )
    assert throughput(found).period == 4
    assert throughput(with_orders(found, {"P": ["A", "C"]})).period == 9
    with pytest.raises(DeadlockError):
        throughput(with_orders(found, {"P": ["C", "A"]}))


@pytest.mark.parametrize(
    ("orders", "sentence"),
    [
        ({"P": ["A", "Z"]}, "the order of 'P' names 'Z', which is not an actor"),
        ({"P": ["A"], "Q": ["A"]}, "'A' is in the orders of both 'P' and 'Q'"),
        ({"P": ["B"]}, "has 1 firings of 'B'; an iteration has 2"),
        ({"P": ["B[0]", "B[0]"]}, "has 2 firings of phase 0 of 'B'; an iteration has 1"),
        ({"P": ["B[2]"]}, "names phase 2 of 'B', which has 2, counted from 0"),
        ({"P": ["B[0]"], "Q": ["B", "B"]}, "have 'B' both as a whole and by phase"),
        ({"P": ["B", "B@1"]}, "'B' would not fire in its own order"),
        ({"P": ["B@2", "B"]}, "'B' would not fire in its own order"),
        ({"P": ["A@1000001", "B", "B"]}, "an offset of 1000001 for 'A'"),
    ],
)
def test_orders_that_do_not_fit(orders: dict[str, list[str]], sentence: str) -> None:
    found = graph({"A": (2,), "B": (1, 3)}, ("A", "B", (2,), (1, 1)))
    with pytest.raises(CsdfError, match=sentence):
        with_orders(found, orders)


def test_a_pipelined_order_works_on_two_frames_in_turn() -> None:
    """A and C share a processor; strictly in turn they wait for B, pipelined nobody waits."""
    found = graph(
        {"A": (2,), "B": (4,), "C": (3,)},
        ("A", "B", (1,), (1,), 0, 2),
        ("B", "C", (1,), (1,), 0, 2),
    )
    assert throughput(with_orders(found, {"P": ["A", "C"]})).period == 9
    pipelined = ordered(found, {"P": ["A", "C@1"]})
    assert throughput(pipelined.graph).period == 5
    assert pipelined.fired == {"A": 1, "B": 0, "C": 0}
    assert pipelined.turns == {"P: A → C", "P: C → A"}
    result = latency(pipelined, "A", "C")
    assert (result.first, result.steady, result.periodic) == (9, 10, 10)


def test_a_link_that_carries_two_channels() -> None:
    """Sending and receiving share the air: there and back, of two frames in turn."""
    found = graph(
        {"A": (4,), "there": (3,), "B": (4,), "back": (3,), "C": (1,)},
        ("A", "there", (1,), (1,), 0, 2),
        ("there", "B", (1,), (1,), 0, 2),
        ("B", "back", (1,), (1,), 0, 2),
        ("back", "C", (1,), (1,), 0, 2),
    )
    turns = {"air": ["there", "back"]}, {"air": ["there", "back@1"]}
    assert [throughput(with_orders(found, one)).period for one in turns] == [10, 6]


def test_a_phase_that_needs_a_bus() -> None:
    """Only the first phase of each actor is on the bus; their second ones overlap."""
    found = graph({"A": (2, 5), "B": (3, 5)})
    bus = {"bus": ["A[0]", "B[0]"]}
    assert throughput(with_orders(found, bus)).period == 8
    assert throughput(with_orders(found, {"bus": ["A", "A", "B", "B"]})).period == 15


def test_offsets_count_within_a_processor() -> None:
    found = graph({"A": (2,), "B": (4,)}, ("A", "B", (1,), (1,), 0, 2))
    assert ordered(found, {"P": ["A@5", "B@6"]}) == ordered(found, {"P": ["A", "B@1"]})


def test_offsets_that_nothing_can_keep() -> None:
    found = graph({"A": (2,), "B": (4,)}, ("A", "B", (1,), (1,), 0, 2))
    assert throughput(with_orders(found, {"P": ["A", "B@1"]})).period == 6
    with pytest.raises(DeadlockError, match="Channel 'c1' needs a capacity of 3 instead of 2"):
        throughput(with_orders(found, {"P": ["A", "B@2"]}))
    with pytest.raises(
        DeadlockError,
        match="the orders deadlock: 'A' waits for room in 'c1' from 'B', which is not yet next on "
        "'P'",
    ):
        ordered(found, {"P": ["A", "B@3"]})
    with pytest.raises(DeadlockError, match="'B' waits for tokens in 'c1' from 'A'"):
        ordered(found, {"P": ["A@1", "B"]})
