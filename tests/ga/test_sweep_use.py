"""What a sweep has found, put to use: the same search again, and YAML that says it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ga.auto import Auto
from ga.paper import saving_percent
from ga.sweep.spaces import SPACES, Tuned, as_yaml, tuned_auto
from ga.vertical import Effort, Vertical
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes, phi
from partition.strategies.base import Problem
from tests.partition.networks import residual
from tests.partition.rewriting_contract import chain_model
from tests.partition.strategy_contract import equal

SMALL = Problem(residual(2), equal(3))
BUDGET = 0.01


def test_a_tuned_strategy_finds_what_the_trial_found() -> None:
    space = SPACES["vertical-paper"]
    parameters = {**space.usual(SMALL, BUDGET), "individuals": 40, "mutation": 0.2, "seeded": 0.0}
    tried = space.search(SMALL, parameters, BUDGET, lambda _part, _value: None)
    solution = Tuned("vertical-paper", parameters, BUDGET).solve(SMALL)
    numbers = SMALL.numbers(solution.assignment)[None]
    found = beta_bytes(layer_beta_bytes(SMALL.network), numbers, 3)
    assert phi(found)[0] == tried
    assert saving_percent(SMALL, numbers[0]) > 0


@pytest.mark.slow
def test_parameters_that_are_not_given_are_the_usual_ones() -> None:
    space = SPACES["vertical"]
    every = Tuned("vertical", space.usual(SMALL, BUDGET), BUDGET).solve(SMALL)
    assert Tuned("vertical", {}, BUDGET).solve(SMALL) == every
    assert replace(every, explanation="") != Tuned("vertical", {"heat": 0.3}, BUDGET).solve(SMALL)


@pytest.mark.slow
def test_auto_searches_with_the_parameters_of_vertical() -> None:
    auto = tuned_auto({"chains": 4}, BUDGET)
    assert auto.name == "auto"
    solution = auto.solve(SMALL)
    assert set(solution.assignment) == set(SMALL.network.layer)


@pytest.mark.slow
def test_the_usual_parameters_are_the_usual_search() -> None:
    assert Tuned("vertical", {"chains": Effort().chains}).solve(SMALL) == Vertical().solve(SMALL)


@pytest.mark.slow
def test_auto_is_the_usual_one_if_vertical_is_tuned_to_the_usual() -> None:
    assert tuned_auto({"chains": Effort().chains}).solve(SMALL) == Auto().solve(SMALL)


def test_tuning_vertical_leaves_the_other_candidates_of_auto_as_they_are() -> None:
    model = chain_model(4)
    problem = Problem(model.network, equal(4), model=model, objective="period")
    names = [strategy.name for strategy in Auto().candidates(problem)]
    assert names == ["sequential", "vertical", "batch-split", "replicated"]
    tuned = tuned_auto({"chains": 4}, BUDGET)
    assert [strategy.name for strategy in tuned.candidates(problem)] == names


@given(
    st.dictionaries(
        st.sampled_from(["individuals", "heat", "budget"]),
        st.one_of(st.integers(1, 10**6), st.floats(1e-9, 1e6)),
        min_size=1,
    )
)
def test_yaml_says_every_digit(parameters: dict[str, float]) -> None:
    assert yaml.safe_load(as_yaml({"vertical": parameters})) == {"ga": {"vertical": parameters}}
