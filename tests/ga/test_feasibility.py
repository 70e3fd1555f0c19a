"""Feasible first: what fits is better than what does not, and the smaller excess is better."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ga.individuals import Individual, PaperIndividual
from ga.objectives import feasible_first

values = st.tuples(st.integers(0, 2), st.integers(0, 3))


def individual(kind: type[Any], *fitness: float) -> Any:
    """An individual of one gene with this fitness."""
    made = kind([0])
    made.fitness.values = fitness
    return made


def better(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Deb's rule, word for word."""
    (excess, value), (excess_of_other, value_of_other) = one, other
    if (excess == 0) != (excess_of_other == 0):
        return excess == 0
    if excess:
        return excess < excess_of_other or (excess == excess_of_other and value < value_of_other)
    return value < value_of_other


@given(values, values)
def test_fitnesses_follow_the_rule(one: tuple[int, int], other: tuple[int, int]) -> None:
    mine, theirs = individual(PaperIndividual, *one), individual(PaperIndividual, *other)
    assert (mine.fitness > theirs.fitness) == better(one, other)
    assert mine.fitness.dominates(theirs.fitness) == better(one, other)


@given(values, values)
def test_scores_follow_the_rule(one: tuple[int, int], other: tuple[int, int]) -> None:
    (excess, value), (excess_of_other, value_of_other) = one, other
    mine, theirs = feasible_first(
        np.array([value, value_of_other], float), np.array([excess, excess_of_other]) / 10
    )
    if excess == excess_of_other > 0:
        assert mine == theirs
    else:
        assert (mine < theirs) == better(one, other)


def test_with_several_objectives_none_may_be_worse() -> None:
    balanced = individual(Individual, 0, 2, 2, 2)
    assert individual(Individual, 0, 2, 1, 2).fitness.dominates(balanced.fitness)
    assert not individual(Individual, 0, 1, 3, 1).fitness.dominates(balanced.fitness)
    assert not individual(Individual, 1, 1, 1, 1).fitness.dominates(balanced.fitness)
    assert balanced.fitness.dominates(individual(Individual, 1, 1, 1, 1).fitness)
