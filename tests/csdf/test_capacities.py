"""The smallest capacities; `test_capacities_brute_force` tries all distributions."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.buffers.capacities import CapacitySearch
from csdf.buffers.storage import unbounded, with_capacities
from csdf.errors import CsdfError, DeadlockError
from csdf.execution.liveness import check_liveness
from csdf.formats import sdf3
from csdf.model.channels import fold_reverse_channels
from csdf.model.graph import Channel, Graph
from csdf.timing.throughput import throughput
from tests.csdf.graphs import consistent_graphs, graph
from tests.effort import examples

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


@examples(22)
@given(consistent_graphs(3, 4), st.integers(0, 60000))
def test_bounds_hold_however_early_the_search_ends(found: Graph, effort: int) -> None:
    assume(unbounded(found))
    assume(check_liveness(found) is None)
    try:
        true = CapacitySearch(found).front()
    except CsdfError:
        return
    assume(true.complete)
    hasty = CapacitySearch(found, effort=effort).front()
    assert hasty.points == true.points[: len(hasty.points)]
    if hasty.rest is None:
        assert hasty == true
        return
    assert hasty.rest.at_least <= true.points[-1].size <= hasty.rest.point.size
    assert hasty.rest.point.period <= true.goal
    assert hasty.next_at_least is not None
    assert all(point.size >= hasty.next_at_least for point in true.points[len(hasty.points) :])


def test_the_reference_front_comes_out_exactly() -> None:
    expected = json.loads((REFERENCE / "reference.json").read_text())["cnnrows_unbounded.xml"]
    about = expected["storage_throughput_pareto"]
    front = CapacitySearch(sdf3.read(REFERENCE / "cnnrows_unbounded.xml")).front()
    found = [
        {
            "capacities": [point.capacities[n] for n in about["channels"]],
            "period": str(point.period),
        }
        for point in front.points
    ]
    assert found == about["points"]
    assert front.complete


def test_bytes_weigh_tokens() -> None:
    """Room for c2 costs a hundred times as much, so c1 gets it where either would do."""
    found = graph(
        {"A": (2,), "B": (2,), "C": (2,)},
        ("A", "B", (1,), (1,), 0, None, 1),
        ("B", "C", (1,), (1,), 0, None, 100),
    )
    by_bytes = CapacitySearch(found, unit="bytes").front()
    assert [(p.size, p.period, dict(p.capacities)) for p in by_bytes.points] == [
        (101, 4, {"c1": 1, "c2": 1}),
        (202, 2, {"c1": 2, "c2": 2}),
    ]
    found = with_capacities(found, {"c1": 5})
    assert CapacitySearch(found, unit="bytes").smallest(Fraction(2)).point.capacities == {"c2": 2}


def test_where_room_always_helps_a_period_is_asked_for() -> None:
    found = graph({"A": (2,), "B": (3,)}, ("A", "B", (1,), (1,)), concurrency=None)
    with pytest.raises(CsdfError, match="more room always helps; name a period"):
        CapacitySearch(found).front()
    assert CapacitySearch(found).smallest(Fraction(1, 2)).point.capacities == {"c1": 10}


def test_a_period_out_of_reach() -> None:
    found = graph({"A": (2,), "B": (3,)}, ("A", "B", (1,), (1,)))
    with pytest.raises(
        CsdfError, match="no capacities reach a period of 2; with unbounded channels it is 3"
    ):
        CapacitySearch(found).front(Fraction(2))


def test_what_no_capacities_free() -> None:
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (1,), (1,)), ("B", "A", (1,), (1,)))
    with pytest.raises(DeadlockError, match="'A' waits"):
        CapacitySearch(found)


def test_channels_that_cannot_be_sized() -> None:
    found = graph({"A": (1,)}, ("A", "A", (1,), (1,), 1))
    with pytest.raises(CsdfError, match="'c1' is a self-channel"):
        CapacitySearch(found, ["c1"])
    with pytest.raises(CsdfError, match="'c9' is not a channel"):
        CapacitySearch(found, ["c9"])


def test_reverse_channels_fold_into_capacities() -> None:
    found = fold_reverse_channels(sdf3.read(REFERENCE / "residual_skip4.xml"))
    assert {c.name: c.capacity for c in found.channels if c.capacity} == {"m": 4, "k": 4, "skip": 4}
    assert throughput(found).period == 8


FEEDBACK = (
    ("x", "A", "B", (1,), (1,), 0),
    ("y", "B", "A", (1,), (1,), 1),
)


@pytest.mark.parametrize("order", [1, -1])
def test_feedback_is_not_taken_for_a_capacity(order: int) -> None:
    """One token goes around, so A and B fire in turn, whatever room there is."""
    actors = graph({"A": (2,), "B": (3,)}).actors
    found = Graph("loop", actors, tuple(Channel(*about) for about in FEEDBACK[::order]))
    assert fold_reverse_channels(found) == found
    assert unbounded(found) == [name for name, *_ in FEEDBACK[::order]]
    point = CapacitySearch(found, ["x", "y"]).smallest().point
    assert (point.capacities, point.period) == ({"x": 1, "y": 1}, 5)


@given(consistent_graphs(), st.data())
def test_only_what_its_name_says_is_a_capacity(found: Graph, data: st.DataObject) -> None:
    assert fold_reverse_channels(found) == found
    bounded = [c for c in found.channels if c.capacity is not None and c.source != c.target]
    written = sdf3.parse(sdf3.write(replace(found, channels=tuple(bounded))).encode())
    folded = fold_reverse_channels(written)
    assert {c.name: c.capacity for c in folded.channels if c.source != c.target} == {
        c.name: c.capacity for c in bounded
    }
    renamed = data.draw(st.sampled_from(("{}0", "{}ack", "back_{}", "{}_space0")))
    others = tuple(
        replace(c, name=renamed.format(c.name.removesuffix("_space")))
        if c.name.endswith("_space")
        else c
        for c in written.channels
    )
    other = replace(written, channels=others)
    assert fold_reverse_channels(other) == other


def test_high_rates_are_stepped_over() -> None:
    """The decoder of `test_classics`, from 594 tokens on; nothing is tried one by one."""
    found = graph(
        {"vld": (26018,), "iq": (559,), "idct": (486,), "mc": (10958,)},
        ("vld", "iq", (594,), (1,)),
        ("iq", "idct", (1,), (1,)),
        ("idct", "mc", (1,), (594,)),
    )
    live = CapacitySearch(found).smallest_live()
    assert (live.exact, live.point.size) == (True, 594 + 1 + 594)
