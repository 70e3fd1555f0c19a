"""The simulator does what a plain execution does, and keeps processors to one firing at a time."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.errors import CsdfError, DeadlockError, TooLargeError
from csdf.execution.liveness import check_liveness
from csdf.execution.simulation import Link, Timeline, simulate, static_orders, with_links
from csdf.execution.static_orders import with_orders
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.throughput import throughput
from tests.csdf import oracle
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.effort import examples


def plainly(timeline: Timeline) -> list[tuple[str, Fraction, Fraction]]:
    return sorted((f.actor, f.start, f.end) for f in timeline.firings)


@examples(30)
@given(consistent_graphs(), st.data())
def test_a_static_order_is_what_it_is_as_channels(some: Graph, data: st.DataObject) -> None:
    """A simulated order starts its firings when the plain execution of the ordered graph does."""
    found = in_order(some)
    assume(check_liveness(found) is None)
    on = {a.name: data.draw(st.sampled_from("PQ")) for a in found.actors}
    orders = static_orders(found, on)
    ordered = with_orders(found, orders)
    expected = oracle.timed(ordered, repetition_vector(ordered), 3)
    assert plainly(simulate(found, 3, orders=orders)) == sorted(expected)
    assert throughput(ordered).period >= throughput(found).period


@examples(30)
@given(consistent_graphs())
def test_a_processor_runs_one_firing_at_a_time_and_never_idles(found: Graph) -> None:
    assume(check_liveness(found) is None)
    timeline = simulate(found, 3, {a.name: "P" for a in found.actors})
    firings = timeline.firings
    assert all(one.end == two.start for one, two in itertools.pairwise(firings))
    assert timeline.end == sum(timeline.busy().values())


def test_the_oldest_iteration_goes_first() -> None:
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (1,), (1,), 0, 9))
    firings = simulate(found, 3, {"A": "P", "B": "P"}).firings
    assert [f"{f.actor}{f.iteration}" for f in firings] == ["A0", "B0", "A1", "B1", "A2", "B2"]


def test_when_iterations_are_complete() -> None:
    found = graph({"A": (2,), "B": (5,)}, ("A", "B", (1,), (1,), 0, 2))
    assert simulate(found, 3).completed == (7, 12, 17)
    assert simulate(found, 3).busy() == {"A": 6, "B": 15}


def test_an_order_that_cannot_be_kept() -> None:
    found = graph({"A": (2,), "B": (5,)}, ("A", "B", (1,), (1,), 0, 2))
    with pytest.raises(DeadlockError, match="no firing can begin at 0: 'B' waits for 1 more"):
        simulate(found, 1, orders={"P": ["B", "A"]})


def test_names_and_limits() -> None:
    found = graph({"A": (2,)})
    with pytest.raises(CsdfError, match="'Z' is to run on 'P', but is not an actor"):
        simulate(found, 1, {"Z": "P"})
    with pytest.raises(TooLargeError, match="2000001 firings"):
        simulate(found, 2_000_001)


def test_links_that_two_channels_share() -> None:
    """Each frame takes 1 + 4 × ½ on the wire, twice; so the wire holds the period."""
    found = graph(
        {"A": (1,), "B": (2,), "C": (1,)},
        ("A", "B", (4,), (4,), 0, 8),
        ("B", "C", (4,), (4,), 0, 8),
    )
    link = Link("wire", Fraction(1), Fraction(1, 2))
    linked, on = with_links(found, {"c1": link, "c2": link})
    timeline = simulate(linked, 20, on)
    # The first frame's second way waits for the second frame's first, on the wire from 4 to 7.
    assert timeline.completed[0] == 1 + 3 + 3 + 3 + 1
    assert timeline.completed[15] - timeline.completed[5] == 10 * 6
    assert repetition_vector(linked) == dict.fromkeys(linked.actor, 1)


@examples(45)
@given(consistent_graphs())
def test_links_that_take_no_time_change_nothing_but_the_capacity(some: Graph) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    linked, _ = with_links(found, {c.name: Link(c.name) for c in found.channels})
    own = set(found.actor)
    there = [one for one in plainly(simulate(linked, 3)) if one[0] in own]
    assert there == plainly(simulate(found, 3))


def test_a_channel_that_no_link_can_carry() -> None:
    with pytest.raises(CsdfError, match="'c7' is to be carried by a link, but is not a channel"):
        with_links(graph({"A": (1,)}), {"c7": Link("wire")})


def test_thousands_of_actors_are_executed() -> None:
    names = [f"a{i}" for i in range(3000)]
    found = graph(
        dict.fromkeys(names, (1,)),
        *((one, two, (1,), (1,), 0, 2) for one, two in itertools.pairwise(names)),
    )
    on = {name: f"device {i % 1000}" for i, name in enumerate(names)}
    assert simulate(found, 4, on).completed[0] == 3000
