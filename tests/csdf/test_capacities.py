"""The smallest capacities against all distributions, and the reference front."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
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
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Channel, Graph
from csdf.timing.throughput import throughput
from tests.csdf import oracle
from tests.csdf.effort import examples, holds
from tests.csdf.graphs import consistent_graphs, graph

REFERENCE = Path(__file__).parent.parent / "fixtures" / "csdf_reference"


def distributions(found: Graph, names: list[str], size: int) -> Iterator[dict[str, int]]:
    """All that are not larger than `size` tokens."""
    starts = [found.channel[name].initial_tokens for name in names]
    ranges = [range(start, size - sum(starts) + start + 1) for start in starts]
    for room in itertools.product(*ranges):
        if sum(room) <= size:
            yield dict(zip(names, room, strict=True))


def shortest(found: Graph, names: list[str], size: int) -> dict[int, Fraction]:
    """Size → the shortest period of any live distribution of just that size."""
    best: dict[int, Fraction] = {}
    for room in distributions(found, names, size):
        candidate = with_capacities(found, room)
        if oracle.executes(candidate, repetition_vector(candidate)):
            period = throughput(candidate).period
            total = sum(room.values())
            best[total] = min(best.get(total, period), period)
    return best


@examples(15, 75)
def test_the_front_is_that_of_all_distributions(tries: int) -> None:
    @given(consistent_graphs(3, 4), st.data())
    def check(found: Graph, data: st.DataObject) -> None:
        names = unbounded(found)
        assume(1 <= len(names) <= 3)
        assume(check_liveness(found) is None)
        search = CapacitySearch(found)
        try:
            front = search.front()
        except CsdfError:  # more room always helps
            top = max(1, sum(sum(a.execution_times) for a in found.actors))
            front = search.front(Fraction(top))
        if not front.complete:
            # Only where nothing is known of why may so little be too much.
            assert search.overtakes
            return
        size = front.points[-1].size
        start = sum(found.channel[name].initial_tokens for name in names)
        assume((size - start + 1) ** len(names) <= 1500)
        best = shortest(found, names, size)
        expected = []
        for total in sorted(best):
            if not expected or best[total] < expected[-1][1]:
                expected.append((total, best[total]))
        assert [(point.size, point.period) for point in front.points] == expected
        for point in front.points:
            candidate = with_capacities(found, point.capacities)
            assert throughput(candidate).period == point.period
            assert sum(point.capacities.values()) == point.size
        # Of several smallest ones, the front takes the fastest; here any will do.
        assert CapacitySearch(found).smallest_live().point.size == front.points[0].size
        last = CapacitySearch(found).smallest(front.goal)
        assert last.at_least <= size <= last.point.size
        assert last.exact or search.overtakes

    holds(tries, check)


@examples(15, 150)
def test_bounds_hold_however_early_the_search_ends(tries: int) -> None:
    @given(consistent_graphs(3, 4), st.integers(0, 60000))
    def check(found: Graph, effort: int) -> None:
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

    holds(tries, check)


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
    with pytest.raises(CsdfError, match="no capacities give a period of 2; without any it is 3"):
        CapacitySearch(found).front(Fraction(2))


def test_what_no_capacities_free() -> None:
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (1,), (1,)), ("B", "A", (1,), (1,)))
    with pytest.raises(DeadlockError, match="'A' waits"):
        CapacitySearch(found)


def test_channels_that_cannot_be_sized() -> None:
    found = graph({"A": (1,)}, ("A", "A", (1,), (1,), 1))
    with pytest.raises(CsdfError, match="'c1' is a self-channel"):
        CapacitySearch(found, ["c1"])
    with pytest.raises(CsdfError, match="'c9' is no channel"):
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
