"""The diagnosis of a deadlock; `test_plain_executions` has liveness and remedies of all graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given

from csdf.errors import InconsistentGraphError, TooLargeError
from csdf.execution.liveness import Remedy, check_liveness, remedies_together
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Channel, Graph
from tests.csdf import oracle
from tests.csdf.graphs import consistent_graphs, graph
from tests.effort import examples


@examples(60)
@given(consistent_graphs())
def test_every_wait_is_real_and_the_cycle_closes(found: Graph) -> None:
    deadlock = check_liveness(found)
    if deadlock is None:
        return
    state = oracle.Untimed(found)
    wanted = {a.name: repetition_vector(found)[a.name] * a.phases for a in found.actors}
    while able := [a for a in state.fired if state.fired[a] < wanted[a] and not state.lacking(a)]:
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
    for wait, after in zip(deadlock.cycle, (*deadlock.cycle[1:], deadlock.cycle[0]), strict=True):
        assert wait.on == after.actor


def is_live(found: Graph) -> bool:
    return oracle.executes(found, repetition_vector(found))


def applied(found: Graph, remedy: Remedy) -> Graph:
    """The graph with the change that the sentence says, and no other."""
    if remedy.reverse is not None:
        reverse = found.channel[remedy.reverse]
        tokens = reverse.initial_tokens + remedy.needed - remedy.now
        return oracle.with_change(found, replace(reverse, initial_tokens=tokens))
    channel = found.channel[remedy.channel]
    if remedy.is_capacity:
        return oracle.with_change(found, replace(channel, capacity=remedy.needed))
    capacity = channel.capacity if remedy.room is None else remedy.room
    return oracle.with_change(
        found, replace(channel, initial_tokens=remedy.needed, capacity=capacity)
    )


def smaller_than(found: Graph, remedy: Remedy) -> list[Remedy]:
    """All changes with no more tokens and no more room, one of them less."""
    if remedy.is_capacity or remedy.room is None:
        return [replace(remedy, needed=needed) for needed in range(remedy.now, remedy.needed)]
    capacity = found.channel[remedy.channel].capacity
    assert capacity is not None
    return [
        replace(remedy, needed=needed, room=room)
        for needed in range(remedy.now, remedy.needed + 1)
        for room in range(max(capacity, needed), remedy.room + 1)
        if (needed, room) != (remedy.needed, remedy.room)
    ]


@pytest.mark.parametrize(
    ("production", "consumption", "tokens", "capacity", "advice"),
    [
        (1, 1, 0, 1, "start with 1 token instead of 0, and needs a capacity of 2 then."),
        (2, 2, 1, 3, "start with 2 tokens instead of 1, and needs a capacity of 4 then."),
        (2, 2, 1, 4, "start with 2 tokens instead of 1."),
    ],
)
def test_tokens_occupy_a_bounded_self_channel(
    production: int, consumption: int, tokens: int, capacity: int, advice: str
) -> None:
    found = graph({"A": (1,)}, ("A", "A", (production,), (consumption,), tokens, capacity))
    deadlock = check_liveness(found)
    assert deadlock is not None
    assert deadlock.advice() == f"Channel 'c1' would have to {advice}"


def test_where_more_room_helps_more_tokens_are_not_a_remedy() -> None:
    """Rates 3 and 2 with 2 places: 2 tokens more would fill them, and so on."""
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (3,), (2,), 0, 2))
    deadlock = check_liveness(found)
    assert deadlock is not None
    assert deadlock.remedies == (Remedy("c1", True, 2, 4),)


@examples(60)
@given(consistent_graphs())
def test_several_changes_free_it_together_and_none_could_be_smaller(found: Graph) -> None:
    assume(check_liveness(found) is not None)
    changes = remedies_together(found)
    assert changes
    assert is_live(together(found, changes))
    for place, change in enumerate(changes):
        for smaller in smaller_than(found, change):
            changed = [*changes[:place], smaller, *changes[place + 1 :]]
            assert not is_live(together(found, changed)), smaller


def together(found: Graph, changes: Sequence[Remedy]) -> Graph:
    for change in changes:
        found = applied(found, change)
    return found


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
def test_without_a_remedy_no_change_of_a_single_channel_frees_it(found: Graph) -> None:
    deadlock = check_liveness(found)
    if deadlock is None:
        return
    named = {remedy.channel for remedy in deadlock.remedies}
    with_room = {remedy.channel for remedy in deadlock.remedies if remedy.is_capacity}
    with_tokens = named - with_room | {
        remedy.channel for remedy in deadlock.remedies if not remedy.is_capacity
    }
    for c in found.channels:
        if c.name not in named:
            roomy = replace(c, initial_tokens=999, capacity=None if c.capacity is None else 1999)
            assert not is_live(oracle.with_change(found, roomy))
        if c.name not in with_room and c.capacity is not None:
            assert not is_live(oracle.with_change(found, replace(c, capacity=999)))
        if c.name not in with_tokens and c.capacity is not None:
            for tokens in range(c.initial_tokens, c.capacity + 1):
                assert not is_live(oracle.with_change(found, replace(c, initial_tokens=tokens)))


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
    forward = Channel("c", "A", "B", (2,), (3,))
    actors = graph({"A": (1,), "B": (1,)}).actors
    for name, known in (("c_space", True), ("d", False)):
        reverse = Channel(name, "B", "A", (3,), (2,), 3)
        deadlock = check_liveness(Graph("pair", actors, (forward, reverse)))
        assert deadlock is not None
        room = Remedy("c", True, 3, 4, name) if known else Remedy(name, False, 3, 4)
        assert set(deadlock.remedies) == {room, Remedy("c", False, 0, 1)}


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
