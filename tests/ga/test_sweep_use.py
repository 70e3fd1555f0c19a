"""What a sweep has found, put to use: the same search again, and YAML that says it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ga.auto import Auto
from ga.hybrid.strategy import Hybrid
from ga.paper import saving_percent
from ga.runs.strategy import Runs
from ga.sweep.costs import relative
from ga.sweep.spaces import SPACES, Tuned, as_yaml, tuned, tuned_auto
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
    tried = space.figures(SMALL, space.strategy(SMALL, parameters, BUDGET).solve(SMALL))
    solution = Tuned("vertical-paper", parameters, BUDGET).solve(SMALL)
    numbers = SMALL.numbers(solution.assignment)[None]
    found = beta_bytes(layer_beta_bytes(SMALL.network), numbers, 3)
    assert (math.log(phi(found)[0]),) == tried
    assert saving_percent(SMALL, numbers[0]) > 0


@pytest.mark.slow
def test_parameters_that_are_not_given_are_the_usual_ones() -> None:
    space = SPACES["vertical"]
    every = Tuned("vertical", space.usual(SMALL, BUDGET), BUDGET).solve(SMALL)
    assert Tuned("vertical", {}, BUDGET).solve(SMALL) == every
    assert replace(every, explanation="") != Tuned("vertical", {"heat": 0.3}, BUDGET).solve(SMALL)


@pytest.mark.slow
def test_auto_searches_with_the_parameters_of_vertical() -> None:
    auto = tuned_auto({"vertical": {"chains": 4, "budget": BUDGET}})
    assert auto.name == "auto"
    solution = auto.solve(SMALL)
    assert set(solution.assignment) == set(SMALL.network.layer)


@pytest.mark.slow
@pytest.mark.further
def test_the_usual_parameters_are_the_usual_search() -> None:
    assert Tuned("vertical", {"chains": Effort().chains}).solve(SMALL) == Vertical().solve(SMALL)


@pytest.mark.slow
@pytest.mark.further
def test_auto_is_the_usual_one_if_vertical_is_tuned_to_the_usual() -> None:
    usual = {name: {} for name in ("vertical", "runs", "hybrid")}
    assert tuned_auto(usual).solve(SMALL) == Auto().solve(SMALL)


def test_tuning_vertical_leaves_the_other_candidates_of_auto_as_they_are() -> None:
    model = chain_model(4)
    problem = Problem(model.network, equal(4), model=model, objective="period")
    names = [strategy.name for strategy in Auto().candidates(problem)]
    assert names == ["sequential", "vertical", "batch-split", "replicated"]
    other = tuned_auto({"vertical": {"chains": 4, "budget": BUDGET}})
    assert [strategy.name for strategy in other.candidates(problem)] == names


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [Runs(), Hybrid()])
def test_runs_and_hybrid_with_the_usual_parameters_are_the_usual_searches(
    strategy: Runs | Hybrid,
) -> None:
    model = chain_model(5)
    problem = Problem(model.network, equal(3), model=model)
    assert tuned(strategy.name, {strategy.name: {}}).solve(problem) == strategy.solve(problem)


def test_a_strategy_goes_by_its_own_section_only() -> None:
    assert tuned("runs", {"runs": {"rounds": 3, "budget": 0.5}}) == Tuned(
        "runs", {"rounds": 3}, 0.5
    )
    assert isinstance(tuned("runs", {"vertical": {"chains": 8}}), Runs)
    assert tuned("sequential", {"vertical": {"chains": 8}}).name == "sequential"


def test_the_parameters_of_auto_become_sections_of_its_strategies() -> None:
    model = chain_model(4)
    problem = Problem(model.network, equal(4), model=model)
    space = SPACES["auto"]
    usual = space.usual(problem, 1.0)
    assert space.sections(usual) == {
        name: SPACES[name].usual(problem, 1.0) for name in ("vertical", "runs", "hybrid")
    }
    assert set(space.sections(space.usual(SMALL, 1.0))) == {"vertical", "runs"}
    energy = replace(problem, objective="energy")
    assert set(space.sections(space.usual(energy, 1.0))) == {"vertical"}


COSTS = st.floats(1e-6, 1e9).map(math.log)


@given(COSTS, COSTS, COSTS, COSTS, st.sampled_from([0.0, 0.1, 0.5]))
def test_one_of_two_plans_is_as_much_better_as_the_other_is_worse(
    period: float, memory: float, other_period: float, other_memory: float, within: float
) -> None:
    problem = replace(SMALL, within=within)
    one, other = (period, memory), (other_period, other_memory)
    there, back = relative(problem, one, other), relative(problem, other, one)
    assert math.log(there) == pytest.approx(-math.log(back), abs=1e-9)
    if period <= other_period and memory <= other_memory:
        assert there <= 1


def test_within_the_tolerance_less_memory_is_better() -> None:
    problem = replace(SMALL, within=0.1)

    def cost(period: float, memory: float) -> float:
        return relative(problem, (math.log(period), math.log(memory)), (0.0, 0.0))

    assert cost(1.09, 0.9) < 1 < cost(1.3, 0.9)
    assert cost(0.95, 1.05) > 1 > cost(0.8, 1.05)


@given(
    st.dictionaries(
        st.sampled_from(["individuals", "heat", "budget"]),
        st.one_of(st.integers(1, 10**6), st.floats(1e-9, 1e6)),
        min_size=1,
    )
)
def test_yaml_says_every_digit(parameters: dict[str, float]) -> None:
    assert yaml.safe_load(as_yaml({"vertical": parameters})) == {"ga": {"vertical": parameters}}
