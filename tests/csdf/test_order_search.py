"""Orders that are found: exact in what they claim, and as good as any order there is."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cnn.network import Network
from csdf.consistency import repetition_vector
from csdf.errors import CsdfError, DeadlockError
from csdf.from_network import convert
from csdf.graph import Graph
from csdf.liveness import check_liveness
from csdf.order_search import find_orders
from csdf.orders import Entry, with_orders
from csdf.skew import schedule
from csdf.throughput import throughput
from tests.csdf.effort import examples, holds
from tests.csdf.graphs import consistent_graphs, graph
from tests.csdf.networks import partitioned


def in_order(found: Graph) -> Graph:
    return replace(found, actors=tuple(replace(a, concurrency=1) for a in found.actors))


def every_order(count: dict[str, int]) -> Iterator[list[Entry]]:
    """All orders of these firings on one processor, with offsets up to 2, from any actor's on."""
    rotations = [
        [(offset, late) for offset in range(3) for late in range(1, n + 1)] for n in count.values()
    ]
    for names in set(itertools.permutations(Counter(count).elements())):
        for chosen in itertools.product(*rotations):
            begun = Counter[str]()
            about = dict(zip(count, chosen, strict=True))
            order = []
            for name in names:
                offset, late = about[name]
                order.append(Entry(name, offset + (begun[name] < late)))
                begun[name] += 1
            yield order


def period_of(found: Graph, orders: dict[str, list[Entry]]) -> float | Fraction:
    try:
        return throughput(with_orders(found, orders)).period
    except DeadlockError:
        return math.inf


@examples(6, 75)
def test_no_order_is_better_than_one_called_the_best(tries: int) -> None:
    @given(consistent_graphs(max_actors=3, bounded=True), st.data())
    def check(some: Graph, data: st.DataObject) -> None:
        found = in_order(some)
        assume(check_liveness(found) is None)
        repetitions = repetition_vector(found)
        on = {name: data.draw(st.sampled_from("PQ")) for name in found.actor}
        shares = {
            p: {a.name: repetitions[a.name] * a.phases for a in found.actors if on[a.name] == p}
            for p in dict.fromkeys(on.values())
        }
        assume(all(sum(count.values()) <= 4 for count in shares.values()))
        result = find_orders(found, on)
        assert result.best
        assert throughput(with_orders(found, result.orders)).period == result.period
        assert result.at_least <= result.period
        if len(shares) == 1:
            tried = [{"P": order} for order in every_order(shares[on["a0"]])]
        else:
            both = [list(itertools.islice(every_order(count), 200)) for count in shares.values()]
            pick = [data.draw(st.permutations(one))[:8] for one in both]
            tried = [dict(zip(shares, pair, strict=True)) for pair in itertools.product(*pick)]
        assert all(period_of(found, orders) >= result.period for orders in tried[:300])

    holds(tries, check)


@examples(4, 50)
def test_a_partitions_phases_reach_the_work_of_the_busiest_device(tries: int) -> None:
    """With the capacities of the skews, and no more: orders can be found that never wait."""

    @given(partitioned(), st.data())
    def check(given: tuple[Network, dict[str, str]], data: st.DataObject) -> None:
        dataflow = convert(*given)
        times = {p.name: Fraction(data.draw(st.integers(0, 9))) for p in dataflow.phases}
        room = schedule(dataflow, slack_frames=0).capacity_frames
        phases = dataflow.phase_graph(times=times, capacity_frames=room)
        found = find_orders(phases, {phase.name: phase.device for phase in dataflow.phases})
        busiest = max(sum(times[p.name] for p in own) for own in dataflow.devices.values())
        assert found.best
        assert found.at_least == found.period == busiest

    holds(tries, check)


def test_a_pipeline_that_shares_a_processor_at_both_ends() -> None:
    found = graph(
        {"A": (2,), "B": (4,), "C": (3,)},
        ("A", "B", (1,), (1,), 0, 2),
        ("B", "C", (1,), (1,), 0, 2),
    )
    result = find_orders(found, {"A": "P", "C": "P"})
    assert (result.period, result.at_least, result.best) == (5, 5, True)
    assert result.orders == {"P": (Entry("A"), Entry("C", 1))}


def test_where_no_order_reaches_what_both_need() -> None:
    """With room for one token everywhere B waits while P does C, whatever the order."""
    found = graph(
        {"A": (2,), "B": (4,), "C": (3,)},
        ("A", "B", (1,), (1,), 0, 1),
        ("B", "C", (1,), (1,), 0, 1),
    )
    result = find_orders(found, {"A": "P", "C": "P"})
    assert (result.period, result.at_least, result.best) == (9, 7, True)


def test_what_is_not_proved_is_not_called_the_best() -> None:
    found = graph(
        {"A": (2,), "B": (4,), "C": (3,)},
        ("A", "B", (1,), (1,), 0, 1),
        ("B", "C", (1,), (1,), 0, 1),
    )
    result = find_orders(found, {"A": "P", "C": "P"}, effort=0)
    assert (result.period, result.at_least, result.best) == (9, 7, False)


def test_what_takes_no_time_needs_an_order_too() -> None:
    found = graph({"A": (0,), "B": (0,)}, ("A", "B", (1,), (1,), 0, 1))
    result = find_orders(found, {"B": "P", "A": "P"})
    assert (result.orders, result.period, result.best) == ({"P": (Entry("A"), Entry("B"))}, 0, True)


def test_an_actor_that_is_none() -> None:
    with pytest.raises(CsdfError, match="'Z' is to run on 'P', but is no actor"):
        find_orders(graph({"A": (1,)}), {"Z": "P"})
