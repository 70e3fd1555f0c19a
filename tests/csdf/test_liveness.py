"""Liveness, and the diagnosis of a deadlock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given

from csdf.errors import InconsistentGraphError, TooLargeError
from csdf.execution.liveness import Remedy, check_liveness, remedies_together
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from tests.csdf import oracle
from tests.csdf.effort import examples, holds
from tests.csdf.graphs import consistent_graphs, graph


@examples(40, 200)
def test_it_says_what_a_plain_execution_finds(tries: int) -> None:
    @given(consistent_graphs())
    def check(found: Graph) -> None:
        assert (check_liveness(found) is None) == oracle.executes(found, repetition_vector(found))

    holds(tries, check)


@examples(40, 200)
def test_every_wait_is_real_and_the_cycle_closes(tries: int) -> None:
    @given(consistent_graphs())
    def check(found: Graph) -> None:
        deadlock = check_liveness(found)
        if deadlock is None:
            return
        state = oracle.Untimed(found)
        wanted = {a.name: repetition_vector(found)[a.name] * a.phases for a in found.actors}
        while able := [
            a for a in state.fired if state.fired[a] < wanted[a] and not state.lacking(a)
        ]:
            state.fire(able[-1])
        expected = {
            (actor, state.phase(actor), channel, for_space, missing)
            for actor in found.actor
            if state.fired[actor] < wanted[actor]
            for (channel, for_space), missing in state.lacking(actor).items()
        }
        waits = {(w.actor, w.phase, w.channel, w.for_space, w.missing) for w in deadlock.waits}
        assert waits == expected
        assert set(deadlock.cycle) <= set(deadlock.waits)
        for wait, after in zip(
            deadlock.cycle, (*deadlock.cycle[1:], deadlock.cycle[0]), strict=True
        ):
            assert wait.on == after.actor

    holds(tries, check)


@examples(40, 200)
def test_a_remedy_frees_the_graph_and_one_token_less_does_not(tries: int) -> None:
    @given(consistent_graphs())
    def check(found: Graph) -> None:
        deadlock = check_liveness(found)
        if deadlock is None:
            return
        for remedy in deadlock.remedies:
            for amount, frees in ((remedy.needed, True), (remedy.needed - 1, False)):
                assert (check_liveness(applied(found, remedy, amount)) is None) == frees

    holds(tries, check)


def applied(found: Graph, remedy: Remedy, amount: int) -> Graph:
    channel = found.channel[remedy.channel]
    if remedy.reverse is not None:
        reverse = found.channel[remedy.reverse]
        tokens = reverse.initial_tokens + amount - remedy.now
        capacity = None if reverse.capacity is None else reverse.capacity + amount - remedy.now
        return oracle.with_change(found, replace(reverse, initial_tokens=tokens, capacity=capacity))
    if remedy.is_capacity:
        return oracle.with_change(found, replace(channel, capacity=amount))
    more = amount - channel.initial_tokens
    capacity = None if channel.capacity is None else channel.capacity + more
    return oracle.with_change(found, replace(channel, initial_tokens=amount, capacity=capacity))


@examples(40, 200)
def test_several_changes_free_it_together_and_none_could_be_smaller(tries: int) -> None:
    @given(consistent_graphs())
    def check(found: Graph) -> None:
        assume(check_liveness(found) is not None)
        changes = remedies_together(found)
        assert changes
        for smaller in (None, *changes):
            changed = found
            for change in changes:
                changed = applied(changed, change, change.needed - (change is smaller))
            assert (check_liveness(changed) is None) == (smaller is None)

    holds(tries, check)


def test_changes_of_several_channels_are_described_where_one_is_not_enough() -> None:
    found = graph(
        {"A": (1,), "B": (1,), "C": (1,)},
        ("A", "B", (2,), (3,), 0, 3),
        ("B", "C", (1,), (2,), 0, 1),
    )
    deadlock = check_liveness(found)
    assert deadlock is not None
    assert deadlock.advice() == "No change of a single channel removes it."
    deadlock = replace(deadlock, together=remedies_together(found))
    assert deadlock.advice() == (
        "No change of a single channel removes it. Together these do: Channel 'c1' needs a "
        "capacity of 4 instead of 3. Channel 'c2' needs a capacity of 2 instead of 1."
    )


def test_a_search_for_changes_ends() -> None:
    slow = graph(
        {"A": (1,), "B": (1,)}, ("A", "B", (10**9,), (1,), 0, 10), ("B", "A", (1,), (10**9,))
    )
    assert remedies_together(slow, effort=2) == ()


@given(consistent_graphs(max_actors=3, max_channels=4))
def test_without_a_remedy_no_single_channel_frees_it(found: Graph) -> None:
    deadlock = check_liveness(found)
    if deadlock is None:
        return
    capacities = {r.channel for r in deadlock.remedies if r.is_capacity}
    tokens = {r.channel for r in deadlock.remedies if not r.is_capacity}
    tokens |= {r.reverse for r in deadlock.remedies if r.reverse is not None}
    for c in found.channels:
        if c.name not in tokens:
            assert check_liveness(applied(found, Remedy(c.name, False, 0, 0), 999)) is not None
        if c.capacity is not None and c.name not in capacities:
            assert check_liveness(applied(found, Remedy(c.name, True, 0, 0), 999)) is not None


def test_the_diagnosis_reads_well() -> None:
    """A skip past a layer that needs four rows before it gives one."""
    found = graph(
        {"split": (1,), "work": (1,), "join": (1,)},
        ("split", "work", (1,), (4,), 0, 8),
        ("work", "join", (4,), (1,), 0, 8),
        ("split", "join", (1,), (1,), 0, 3),
    )
    assert str(check_liveness(found)) == (
        "Deadlock: 'split' waits in phase 0 for 1 more place in channel 'c3', which 'join' would "
        "have to free; 'join' waits in phase 0 for 1 more token in channel 'c2', which 'work' "
        "would have to produce; 'work' waits in phase 0 for 1 more token in channel 'c1', which "
        "'split' would have to produce. Channel 'c3' needs a capacity of 4 instead of 3."
    )


def test_a_capacity_written_as_a_reverse_channel_is_called_a_capacity() -> None:
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (2,), (3,)), ("B", "A", (3,), (2,), 3))
    deadlock = check_liveness(found)
    assert deadlock is not None
    assert deadlock.remedies == (Remedy("c1", True, 3, 4, "c2"), Remedy("c1", False, 0, 1))


def test_high_rates_cost_nothing() -> None:
    billion = 10**9
    found = graph(
        {"A": (1,), "B": (1, 1), "C": (1,)},
        ("A", "B", (billion,), (1, 0)),
        ("B", "C", (1, 2), (3 * billion,)),
        ("B", "B", (1, 1), (1, 1), 1),
    )
    assert check_liveness(found) is None


def test_too_many_firings_are_refused_in_bounded_time() -> None:
    found = graph(
        {"A": (1,), "B": (1,), "C": (1,)},
        ("A", "B", (10**9,), (1,)),
        ("B", "C", (1,), (1,), 0, 1),
    )
    with pytest.raises(TooLargeError, match="2000000001 firings"):
        check_liveness(found, step_limit=1000)


def test_nothing_is_live() -> None:
    assert check_liveness(graph({})) is None
    assert check_liveness(graph({"A": (1,)})) is None


def test_an_inconsistent_graph_is_neither() -> None:
    with pytest.raises(InconsistentGraphError):
        check_liveness(graph({"A": (1,)}, ("A", "A", (2,), (1,))))
