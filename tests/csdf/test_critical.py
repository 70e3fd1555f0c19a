"""The critical cycle is a real one, and bounds are known without finding it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from csdf.analysis import analyze
from csdf.errors import DeadlockError, PeriodBoundsError
from csdf.execution.liveness import check_liveness
from csdf.execution.untimed import Execution
from csdf.model.consistency import repetition_vector
from csdf.model.graph import Graph
from csdf.model.lowered import Lowered
from csdf.timing.throughput import Method, require_live, throughput
from tests.csdf import oracle
from tests.csdf.graphs import consistent_graphs, graph, may_overtake
from tests.effort import examples


def bounds(found: Graph, effort: int) -> tuple[Fraction, Fraction | None]:
    try:
        return (throughput(found, effort=effort).period,) * 2
    except PeriodBoundsError as error:
        return error.at_least, error.at_most


METHODS: list[Method] = ["auto", "cycle ratio", "expansion"]


@examples(45)
@given(consistent_graphs(), st.sampled_from(METHODS))
def test_firing_by_firing_it_takes_as_long_as_the_period(found: Graph, method: Method) -> None:
    """Some firing waits, along these channels, for one of itself, iterations ago."""
    assume(check_liveness(found) is None and not may_overtake(found))
    result = throughput(found, method)
    if result.critical:
        around = [(s.actor, s.phase, s.channel, s.for_space) for s in result.critical]
        ratio = oracle.ratio_of_cycle(found, repetition_vector(found), around)
        assert ratio == result.period


@examples(45)
@given(consistent_graphs(), st.integers(0, 40))
def test_with_less_effort_there_are_bounds_on_the_period(found: Graph, effort: int) -> None:
    assume(check_liveness(found) is None and not may_overtake(found))
    period = throughput(found).period
    least, most = bounds(found, effort)
    assert most is not None
    assert least <= period <= most


@examples(45)
@given(consistent_graphs(times=st.sampled_from((Fraction(0), Fraction(0), Fraction(2)))))
def test_schedules_decide_liveness_as_executions_do(found: Graph) -> None:
    """As where there are so many firings that none are executed; zero times hide nothing."""
    assume(not may_overtake(found))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csdf.timing.throughput.EXECUTED_AT_FIRST", -1)
        patch.setattr("csdf.timing.throughput.EXECUTION_LIMIT", 0)
        try:
            throughput(found)
        except DeadlockError:
            assert not oracle.executes(found, repetition_vector(found))
        else:
            assert oracle.executes(found, repetition_vector(found))


def test_bounds_say_what_they_are_and_how_to_get_more() -> None:
    coprime = graph({"A": (1,), "B": (1,)}, ("A", "B", (101,), (103,), 0, 205))
    with pytest.raises(PeriodBoundsError, match=r"\d+ constraints .* at most 100 are") as caught:
        throughput(coprime, effort=100)
    assert caught.value.at_least == 103
    assert caught.value.at_most is not None
    assert caught.value.at_least < throughput(coprime).period < caught.value.at_most


def test_no_bound_is_worse_than_one_firing_after_the_other() -> None:
    put, taken = 10000019, 9999991
    coprime = graph({"A": (1,), "B": (1,)}, ("A", "B", (put,), (taken,), 0, put + taken - 1))
    assert bounds(coprime, 1_000_000) == (put, put + taken)


RATE, FEW = st.integers(1, 12), st.integers(0, 9)


@examples(90)
@given(RATE, RATE, FEW, st.integers(0, 30), st.booleans())
def test_two_actors_without_the_room_for_their_rates_deadlock(
    put: int, taken: int, tokens: int, room: int, feedback: bool
) -> None:
    """Also where nobody executes an iteration."""
    ends: list[tuple[object, ...]] = [("A", "B", (put,), (taken,), tokens, tokens + room)]
    if feedback:
        ends = [("A", "B", (put,), (taken,), tokens), ("B", "A", (taken,), (put,), room)]
    found = graph({"A": (1,), "B": (0,)}, *ends)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("csdf.timing.throughput.EXECUTED_AT_FIRST", 0)
        patch.setattr("csdf.timing.throughput.EXECUTION_LIMIT", 0)
        patch.setattr("csdf.timing.cycle_ratio.EFFORT", 0)
        try:
            require_live(found)
        except DeadlockError:
            assert not oracle.executes(found, repetition_vector(found))
        else:
            assert oracle.executes(found, repetition_vector(found))


def test_without_times_liveness_is_decided_in_the_same_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody executes more than a few of the firings, of which an iteration has 20 million."""
    monkeypatch.setattr("csdf.timing.throughput.EXECUTION_LIMIT", 1000)
    put, taken = 10000019, 9999991
    for less, live in ((1, True), (2, False)):
        found = graph({"A": (0,), "B": (0,)}, ("A", "B", (put,), (taken,), 0, put + taken - less))
        assert analyze(found, untimed=("A", "B")).live is live


@pytest.mark.parametrize("tokens", [0, 10000019, 10000019 + 9999991 - 2])
def test_a_deadlock_that_is_proved_is_not_looked_for_by_long_executions(
    tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 million firings, an execution reaches the deadlock after most of them, or never."""
    monkeypatch.setattr("csdf.timing.throughput.EXECUTION_LIMIT", 1000)
    limits: list[int] = []
    begin = Execution.__init__

    def noted(self: Execution, lowered: Lowered, firings: list[int], steps: int) -> None:
        limits.append(steps)
        begin(self, lowered, firings, steps)

    monkeypatch.setattr(Execution, "__init__", noted)
    put, taken = 10000019, 9999991
    ends = ("A", "B", (put,), (taken,)), ("B", "A", (taken,), (put,), tokens)
    found = analyze(graph({"A": (1,), "B": (1,)}, *ends))
    assert isinstance(found.deadlock, str)
    assert "must have 20000009 tokens and places together" in found.deadlock
    assert sum(limits) <= 100_000


SCALES = st.sampled_from((10**3, 10**9, 10**17, 2**61 - 1, 2**62, 10**30))


@examples(45)
@given(consistent_graphs(), SCALES, SCALES, st.sampled_from(METHODS))
def test_huge_numbers_change_nothing_but_the_scale(
    found: Graph, times: int, tokens: int, method: Method
) -> None:
    """Whether they fit 64 bits, in sum or not at all."""
    assume(check_liveness(found) is None and not may_overtake(found))
    assert throughput(scaled(found, times, tokens), method).period == (
        throughput(found).period * times
    )


def scaled(found: Graph, times: int, tokens: int) -> Graph:
    """With times and tokens multiplied; a token less than that in a channel is as good as none."""
    return Graph(
        found.name,
        tuple(
            replace(a, execution_times=tuple(t * times for t in a.execution_times))
            for a in found.actors
        ),
        tuple(
            replace(
                c,
                production=tuple(rate * tokens for rate in c.production),
                consumption=tuple(rate * tokens for rate in c.consumption),
                initial_tokens=c.initial_tokens * tokens + tokens - 1,
                capacity=None if c.capacity is None else c.capacity * tokens + tokens - 1,
            )
            for c in found.channels
        ),
    )
