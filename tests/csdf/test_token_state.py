"""The state that all engines share: how a firing changes it, and which actors it wakes."""

from __future__ import annotations

from fractions import Fraction

import pytest

from csdf.execution.token_state import NOTHING, TokenState
from csdf.model.graph import Actor, Channel, Graph
from csdf.model.lowered import lower

A, B = 0, 1


@pytest.fixture
def state() -> TokenState:
    """A puts 1, then 2 tokens into a channel from which B takes 3."""
    actors = (Actor("A", (Fraction(1), Fraction(1))), Actor("B", (Fraction(1),)))
    return TokenState(lower(Graph("", actors, (Channel("c", "A", "B", (1, 2), (3,)),))))


def test_at_first_every_actor_is_looked_at(state: TokenState) -> None:
    assert list(state.woken) == [A, B]


def test_a_firing_consumes_when_it_begins_and_produces_when_it_ends(state: TokenState) -> None:
    state.produce([(0, 4)])
    assert state.is_enabled(B)
    assert state.consume(B) == 0
    assert (state.tokens, state.fired) == ([1], [0, 1])
    assert state.begin(A) == 0
    assert state.tokens == [1]
    state.produce(state.produces[A][0])
    assert (state.tokens, state.fired) == ([2], [1, 1])


def test_an_actor_goes_through_its_phases(state: TokenState) -> None:
    assert [state.begin(A) for _ in range(3)] == [0, 1, 0]
    assert state.phase(A) == 1
    assert [state.consume(A) for _ in range(2)] == [3, 4]


@pytest.mark.parametrize("asks", [TokenState.begin, TokenState.is_enabled])
def test_who_lacks_tokens_is_woken_as_soon_as_they_are_there_and_not_before(
    state: TokenState, asks: object
) -> None:
    assert callable(asks)
    state.woken.clear()
    assert asks(state, B) in (False, -1)
    assert (state.missing(B), state.awaited[B], state.fired[B]) == ([(0, 3)], (0, 3), 0)
    state.produce([(0, 2)])
    assert not state.woken
    state.produce([(0, 1)])
    assert (list(state.woken), state.awaited[B], state.missing(B)) == ([B], NOTHING, [])
    state.produce([(0, 5)])
    assert list(state.woken) == [B], "only those who wait are woken"


def test_after_a_change_by_hand_every_actor_is_looked_at_again(state: TokenState) -> None:
    state.woken.clear()
    state.is_enabled(B)
    state.tokens[0] = 3
    state.wake_all()
    assert (list(state.woken), state.awaited) == ([A, B], [NOTHING, NOTHING])
    assert state.is_enabled(B)
