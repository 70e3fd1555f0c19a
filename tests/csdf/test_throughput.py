"""The exact period, by every method; `test_plain_executions` holds them to plain executions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.analysis import analyze
from csdf.errors import DeadlockError
from csdf.execution.liveness import check_liveness
from csdf.generation import Capacities, generate
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.timing.expansion import homogeneous
from csdf.timing.throughput import Throughput, actor_periods, throughput
from tests.csdf import oracle
from tests.csdf.graphs import connected_parts, consistent_graphs, graph, may_overtake
from tests.effort import examples


def periods(found: Graph) -> set[Fraction]:
    """By every method that applies."""
    results = {throughput(found).period, throughput(found, "state space").period}
    if not may_overtake(found):
        results |= {throughput(found, "cycle ratio").period}
        results |= {throughput(found, "expansion").period}
    return results


@examples(60)
@given(consistent_graphs())
def test_the_critical_cycle_accounts_for_the_period(found: Graph) -> None:
    """With the times of the phases on it doubled, the period doubles."""
    assume(check_liveness(found) is None and not may_overtake(found))
    result = throughput(found)
    if result.period == 0:
        assert result.critical == ()
        return
    on_it = {(step.actor, step.phase) for step in result.critical}
    doubled = tuple(
        replace(
            actor,
            execution_times=tuple(
                2 * time if (actor.name, phase) in on_it else time
                for phase, time in enumerate(actor.execution_times)
            ),
        )
        for actor in found.actors
    )
    slower = Graph("slower", doubled, found.channels)
    if not may_overtake(slower):
        assert throughput(slower).period == 2 * result.period


def test_a_device_is_busy_with_its_phases_in_turn() -> None:
    found = graph({"device": (3, 4, 5)})
    assert throughput(found).period == 12


def test_without_a_cycle_there_is_no_bound() -> None:
    found = graph({"A": (3,), "B": (1,)}, ("A", "B", (1,), (1,)), concurrency=None)
    assert throughput(found) == Throughput(Fraction(0), ())
    assert throughput(found, "state space") == Throughput(Fraction(0), ())
    assert throughput(graph({})) == Throughput(Fraction(0), ())


def test_times_are_exact() -> None:
    third = Fraction(1, 3)
    found = graph({"A": (1,)})
    found = replace(found, actors=(replace(found.actors[0], execution_times=(third,)),))
    assert throughput(found).period == third


def test_a_cycle_of_zero_times_does_not_run_for_ever() -> None:
    found = graph({"A": (0,), "B": (0, 0)}, ("A", "B", (2,), (1, 1), 0, 2))
    assert periods(found) == {Fraction(0)}


def test_zero_times_among_others() -> None:
    """A's long phase gives nothing, and nothing keeps its next firings from starting."""
    found = graph({"A": (5, 0)}, ("A", "A", (0, 1), (0, 1), 1), concurrency=None)
    assert throughput(found).period == 0


def test_a_capacity_that_holds_the_period_is_named() -> None:
    found = graph({"A": (2,), "B": (3,)}, ("A", "B", (1,), (1,), 0, 1))
    result = throughput(found)
    assert result.period == 5
    assert {(step.actor, step.channel, step.for_space) for step in result.critical} == {
        ("A", "c1", False),
        ("B", "c1", True),
    }


def test_a_multirate_cycle_where_strictly_periodic_firings_would_be_slower() -> None:
    """A fires 3 times per iteration, B twice."""
    found = graph(
        {"A": (1,), "B": (1,)}, ("A", "B", (2,), (3,), 0), ("B", "A", (3,), (2,), 4), concurrency=1
    )
    assert throughput(found).period == 5  # 12 if every actor had one period of its own
    assert oracle.period(found) == 5


def test_a_deadlock_has_no_period() -> None:
    found = graph({"A": (1,), "B": (1,)}, ("A", "B", (1,), (1,)), ("B", "A", (1,), (1,)))
    with pytest.raises(DeadlockError, match="'A' waits in phase 0"):
        throughput(found)


def test_rates_of_a_billion_take_no_longer() -> None:
    billion = 10**9
    found = graph(
        {"A": (7,), "B": (1,), "C": (2,)},
        ("A", "B", (billion,), (billion - 1,)),
        ("B", "C", (1,), (1,)),
    )
    assert repetition_vector(found)["A"] == billion - 1
    assert throughput(found).period == 7 * (billion - 1)  # A: 7 × q; C: 2 × 10⁹ is less


def test_a_deadlock_among_billions_of_firings_is_found() -> None:
    billion = 10**9
    found = graph(
        {"A": (7,), "B": (1,)},
        ("A", "B", (billion,), (1,)),
        ("B", "A", (1,), (billion,), billion - 1),
    )
    with pytest.raises(DeadlockError):
        throughput(found)


def test_numbers_beyond_64_bits() -> None:
    big = 10**30
    found = graph({"A": (3,), "B": (4,)}, ("A", "B", (big,), (big,), 0, big))
    found = replace(
        found,
        actors=tuple(
            replace(a, execution_times=(a.execution_times[0] * Fraction(big, 7),))
            for a in found.actors
        ),
    )
    assert throughput(found).period == Fraction(7 * big, 7)


def test_times_that_fit_64_bits_while_their_sum_does_not() -> None:
    long = 2 * 10**18
    found = graph({"A": (long,) * 7, "B": (long,) * 5}, ("A", "B", (1,) * 7, (1, 1, 1, 1, 3), 0, 3))
    assert periods(found) == {8 * long}


@examples(45)
@given(consistent_graphs(max_actors=3, max_channels=4))
def test_each_actor_is_as_fast_as_a_plain_execution_shows(found: Graph) -> None:
    """Over so many iterations that what initial tokens save or a first wait costs is little."""

    many = 60
    assume(check_liveness(found) is None and not may_overtake(found))
    repetitions = repetition_vector(found)
    firings = oracle.timed(found, repetitions, 2 * many)
    once = sum(repetitions[a.name] * sum(a.execution_times) for a in found.actors)
    for name, period in actor_periods(found).items():
        ends = [end for actor, _, end in firings if actor == name]
        taken = max(ends) - max(ends[: len(ends) // 2])
        assert abs(taken - many * period) <= 9 * once


@given(consistent_graphs())
def test_the_slowest_actor_has_the_period_of_the_graph(found: Graph) -> None:
    assume(check_liveness(found) is None)
    assert max(actor_periods(found).values()) == throughput(found).period


def test_parts_that_no_channel_joins_have_periods_of_their_own() -> None:
    found = graph(
        {"A": (3,), "B": (1,), "C": (7,), "D": (1,)},
        ("A", "B", (1,), (1,)),
        ("C", "D", (1,), (3,)),
    )
    assert actor_periods(found) == {"A": 3, "B": 3, "C": 21, "D": 21}
    result = analyze(found)
    assert (result.period, result.parts) == (21, [(["A", "B"], 3), (["C", "D"], 21)])
    assert result.throughput == {
        "A": Fraction(1, 3),
        "B": Fraction(1, 3),
        "C": Fraction(1, 7),
        "D": Fraction(1, 21),
    }


@examples(90)
@given(consistent_graphs())
def test_a_part_is_analysed_as_if_it_were_alone(found: Graph) -> None:
    assume(check_liveness(found) is None)
    together = actor_periods(found)
    alone = [actor_periods(part) for part in connected_parts(found)]
    assert together == {name: period for part in alone for name, period in part.items()}
    assert len(analyze(found).parts) == (0 if len(alone) == 1 else len(alone))


@examples(60)
@given(consistent_graphs(max_actors=3, max_channels=4))
def test_the_homogeneous_graph_starts_every_firing_at_the_same_time(found: Graph) -> None:
    assume(check_liveness(found) is None and not may_overtake(found))
    expanded = homogeneous(found)
    assert {rate for c in expanded.channels for rate in (*c.production, *c.consumption)} <= {1}
    per = {a.name: repetition_vector(found)[a.name] * a.phases for a in found.actors}
    starts: dict[str, list[Fraction]] = {}
    count = Counter[str]()
    for actor, start, _ in oracle.timed(found, repetition_vector(found), 5):
        starts.setdefault(f"{actor}[{count[actor] % per[actor]}]", []).append(start)
        count[actor] += 1
    own: dict[str, list[Fraction]] = {}
    for name, start, _ in oracle.timed(expanded, dict.fromkeys(expanded.actor, 1), 5):
        own.setdefault(name, []).append(start)
    assert {name: sorted(own[name]) for name in starts} == starts
    assert throughput(expanded).period == throughput(found).period


@given(
    st.integers(2, 9), st.integers(0, 5), st.integers(1, 60), st.integers(0, 3),
    st.sampled_from(("none", "roomy", "tight")), st.integers(0, 99),
)  # fmt: skip
def test_generated_graphs_are_live_connected_and_the_same_again(
    actors: int, more: int, firings: int, feedback: int, capacities: Capacities, seed: int
) -> None:
    size = actors, actors - 1 + more, firings
    found = generate(*size, capacities=capacities, feedback=feedback, seed=seed)
    assert len(found.channels) == actors - 1 + more + feedback
    assert len(connected_parts(found)) == 1
    assert all((c.capacity is None) == (capacities == "none") for c in found.channels)
    assert oracle.executes(found, repetition_vector(found))
    assert generate(*size, capacities=capacities, feedback=feedback, seed=seed) == found
