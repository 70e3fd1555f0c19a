"""Both searches on ResNet50, the network of the paper's Table 3 and of the demo."""

from __future__ import annotations

from functools import cache

import pytest

import cnn
from cnn.network import Network
from ga.paper import PaperParameters, evolve, saving_percent
from ga.vertical import Vertical
from partition.strategies.base import Problem
from tests.partition.strategy_contract import equal

pytestmark = pytest.mark.slow


@cache
def resnet50() -> Network:
    return cnn.read("onnx-wheel:resnet50").network


@pytest.mark.parametrize(
    ("count", "percent"), [(4, 74.98), pytest.param(10, 89.64, marks=pytest.mark.further)]
)
def test_the_papers_search_saves_nearly_what_can_be_saved_from_random_individuals(
    count: int, percent: float
) -> None:
    problem = Problem(resnet50(), equal(count))
    evolution = evolve(problem, PaperParameters(), lambda *_: None)
    assert evolution.logbook[0]["least"] > 2 * evolution.phi
    assert saving_percent(problem, evolution.best) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize(
    ("count", "bound", "share", "megabytes"),
    [
        pytest.param(4, 0.98, 1.05, 17, marks=pytest.mark.further),
        pytest.param(10, 0.95, 1.2, 37, marks=pytest.mark.further),
    ],
)
def test_one_plan_is_fair_in_work_and_weights_and_moves_little(
    count: int, bound: float, share: float, megabytes: float
) -> None:
    problem = Problem(resnet50(), equal(count))
    solution = Vertical().solve(problem)
    found = problem.costs.evaluate(problem.numbers(solution.assignment)[None])
    weights = found.weight_bytes[0]
    assert problem.costs.layer_s[:, 0].sum() / found.compute_s[0].max() >= bound * count
    assert weights.max() <= share * weights.sum() / count
    ends = {*problem.network.inputs, *problem.network.outputs}
    with_the_launcher = sum(problem.network.tensors[name].bytes for name in ends)
    assert found.wire_bytes[0] - with_the_launcher <= megabytes * 1e6
    periods = [candidate.period_s for candidate in solution.front]
    assert len(periods) >= 10
    assert periods == sorted(periods)


@pytest.mark.parametrize(
    "count", [2, *(pytest.param(count, marks=pytest.mark.further) for count in (5, 10))]
)
def test_the_objective_memory_saves_what_equation_2_allows(count: int) -> None:
    problem = Problem(resnet50(), equal(count), objective="memory")
    numbers = problem.numbers(Vertical().solve(problem).assignment)
    assert saving_percent(problem, numbers) == pytest.approx(100 * (1 - 1 / count), abs=0.1)
