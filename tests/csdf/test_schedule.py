"""Periodic schedules keep every channel within its bounds; orders are what they say."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.errors import CsdfError
from csdf.execution.liveness import check_liveness
from csdf.execution.static_orders import Entry, ordered
from csdf.model.graph import Actor, Graph
from csdf.timing.schedule import Schedule, periodic_schedule
from csdf.timing.throughput import throughput
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.csdf.order_examples import pipelined
from tests.effort import examples

Event = tuple[Fraction, str, int, Fraction]
"""(start, actor, phase, end)"""


def keeps_the_rules(found: Graph, schedule: Schedule, iterations: int) -> bool:
    """Plays the schedule: what is read is there, what is claimed is free, tokens only counted.

    A few more iterations are played, because their tokens may come first where firings overtake.
    """
    turn = schedule.period * schedule.iterations
    events: dict[str, list[Event]] = {}
    for actor in found.actors:
        starts = schedule.starts[actor.name]
        numbered = enumerate(n * turn + start for n in range(iterations + 6) for start in starts)
        events[actor.name] = [
            (begin, actor.name, i % actor.phases, begin + actor.execution_times[i % actor.phases])
            for i, begin in numbered
        ]
    known = {name: iterations * len(own) for name, own in schedule.starts.items()}
    for c in found.channels:
        made = [end for _, _, p, end in events[c.source] for _ in range(c.production[p])]
        freed = [end for _, _, p, end in events[c.target] for _ in range(c.consumption[p])]
        writes, reads = events[c.source][: known[c.source]], events[c.target][: known[c.target]]
        claimed = [begin for begin, _, p, _ in writes for _ in range(c.production[p])]
        read = [begin for begin, _, p, _ in reads for _ in range(c.consumption[p])]
        if any(
            at < there for at, there in zip(read[c.initial_tokens :], sorted(made), strict=False)
        ):
            return False
        if c.capacity is not None:
            free = c.capacity - c.initial_tokens
            if any(at < there for at, there in zip(claimed[free:], sorted(freed), strict=False)):
                return False
    return all(overlaps_no_more(events[actor.name], actor) for actor in found.actors)


def overlaps_no_more(events: list[Event], actor: Actor) -> bool:
    """Firings start in order, and no more of them overlap than may."""
    own = [(begin, end) for begin, _, _, end in events]
    if actor.concurrency is None:
        freed = [begin for begin, _ in own]
    else:
        freed = sorted(end for _, end in own)
    after = own[actor.concurrency or 1 :]
    in_order = all(a <= b for (a, _), (b, _) in itertools.pairwise(own))
    return in_order and all(b >= free for free, (b, _) in zip(freed, after, strict=False))


@examples(30)
@given(consistent_graphs(), st.fractions(0, 3))
def test_the_earliest_schedule_reaches_the_period_and_keeps_the_rules(
    some: Graph, more: Fraction
) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    period = throughput(found).period
    schedule = periodic_schedule(found)
    assert schedule.period == period
    assert min(min(starts) for starts in schedule.starts.values()) == 0
    assert keeps_the_rules(found, schedule, 4)
    assert keeps_the_rules(found, periodic_schedule(found, period + more), 4)


@examples(9)
@given(consistent_graphs(), st.data())
def test_on_processors_it_keeps_to_their_orders(some: Graph, data: st.DataObject) -> None:
    """One firing at a time, in the order of the list, each for its own iteration."""
    found = in_order(some)
    assume(check_liveness(found) is None)
    orders = data.draw(pipelined(found))
    try:
        placed = ordered(found, orders)
        schedule = periodic_schedule(placed)
    except CsdfError:  # a deadlock, or phases in different orders may overtake each other
        assume(False)
    assert min((min(own) for own in schedule.starts.values()), default=0) == 0
    assert keeps_the_rules(found, schedule, 4)
    for order in orders.values():
        check_order(found, schedule, order)


def check_order(found: Graph, schedule: Schedule, order: list[Entry]) -> None:
    """Plays a processor's list: no entry starts before the one before it has ended."""
    least = min(one.offset for one in order)
    done = dict[tuple[str, int | None], int]()
    free = Fraction(-(10**9))
    for period in range(10):
        for one in order:
            if period < one.offset - least:
                continue
            actor, key = found.actor[one.actor], (one.actor, one.phase)
            number = done.get(key, 0)
            done[key] = number + 1
            if one.phase is not None:
                number = number * actor.phases + one.phase
            own = schedule.starts[one.actor]
            iteration, place = divmod(number, len(own))
            start = own[place] + iteration * schedule.period
            assert start >= free
            free = start + actor.execution_times[number % actor.phases]


def test_a_schedule_one_could_write_by_hand() -> None:
    found = graph({"A": (2,), "B": (1, 3)}, ("A", "B", (1,), (1, 1), 0, 1))
    assert periodic_schedule(found) == Schedule(Fraction(8), {"A": (0, 3), "B": (2, 5)})


def test_a_period_finer_than_any_machine_word_is_taken_exactly() -> None:
    found = graph({"A": (0,)})
    assert periodic_schedule(found, Fraction(1, 1 << 63)).period == Fraction(1, 1 << 63)


def test_a_period_too_short_is_refused() -> None:
    with pytest.raises(CsdfError, match="cannot keep a period of 2; the shortest is 3"):
        periodic_schedule(graph({"A": (3,)}), Fraction(2))
