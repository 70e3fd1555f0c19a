"""Slack: an actor may take that much longer, and no more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given

from csdf.errors import CsdfError, TooLargeError
from csdf.execution.liveness import check_liveness
from csdf.execution.static_orders import with_orders
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.slack import slack
from csdf.timing.throughput import throughput
from tests.csdf.graphs import consistent_graphs, graph, in_order
from tests.effort import examples


def longer(found: Graph, name: str, phase: int, by: Fraction) -> Graph:
    actors = []
    for actor in found.actors:
        times = list(actor.execution_times)
        if actor.name == name:
            times[phase] += by
        actors.append(replace(actor, execution_times=tuple(times)))
    return replace(found, actors=tuple(actors))


def unrolled(found: Graph) -> Graph:
    """Every firing of an iteration is its own phase."""
    return with_orders(found, {name: [name] * count for name, count in counts(found).items()})


def counts(found: Graph) -> dict[str, int]:
    return {a.name: repetition_vector(found)[a.name] * a.phases for a in found.actors}


@examples(15)
@given(consistent_graphs())
def test_any_one_firing_may_take_the_slack_longer_and_some_may_not_take_more(some: Graph) -> None:
    """Tried out on every firing of an iteration."""
    found = in_order(some)
    assume(check_liveness(found) is None)
    before = throughput(found).period
    apart = unrolled(found)
    for name, spare in slack(found).items():
        assert spare is not None
        every = range(counts(found)[name])
        after = {throughput(longer(apart, name, i, spare)).period for i in every}
        assert after == {before}
        beyond = spare + Fraction(1, 7)
        after = {throughput(longer(apart, name, i, beyond)).period for i in every}
        assert max(after) > before


@examples(30)
@given(consistent_graphs())
def test_an_actor_on_the_critical_cycle_has_no_slack(some: Graph) -> None:
    found = in_order(some)
    assume(check_liveness(found) is None)
    spare = slack(found)
    assert all(spare[step.actor] == 0 for step in throughput(found).critical)


def test_an_actor_on_no_cycle_may_take_as_long_as_it_likes() -> None:
    found = graph({"A": (2,)}, concurrency=None)
    assert slack(found) == {"A": None}


def test_one_that_waits() -> None:
    found = graph({"A": (2,), "B": (7,)}, ("A", "B", (1,), (1,), 0, 2))
    assert slack(found) == {"A": 5, "B": 0}


def test_where_firings_overtake_it_is_not_defined() -> None:
    with pytest.raises(CsdfError, match="a later one may end first"):
        slack(graph({"A": (1, 2)}, concurrency=2))


def test_too_much_work_is_refused() -> None:
    with pytest.raises(TooLargeError, match="more than 3 steps"):
        slack(graph({"A": (1, 2)}), work_limit=3)
