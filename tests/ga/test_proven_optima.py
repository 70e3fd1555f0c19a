"""The vertical search beside optima that `exact` proves."""

from __future__ import annotations

from pathlib import Path

import pytest

import cnn
from ga.vertical import Vertical
from partition.strategies.base import Problem
from partition.strategies.exact.placement import Shape
from partition.strategies.exact.search import SolverEffort
from partition.strategies.exact.strategy import Exact
from tests.partition.strategy_contract import equal

MODELS = Path(__file__).parent.parent / "fixtures" / "models"


@pytest.mark.slow
@pytest.mark.further
def test_its_fastest_assignment_is_within_one_per_cent_of_the_best_stages() -> None:
    problem = Problem(cnn.read(str(MODELS / "DenseNet201.onnx")).network, equal(6))
    stages = Exact("exact", Shape(contiguous=True), SolverEffort(60.0, 120.0)).solve(problem)
    assert stages.optimal
    best = problem.costs.evaluate(problem.numbers(stages.assignment)[None]).period_s[0]
    assert Vertical().solve(problem).front[0].period_s <= 1.01 * best
