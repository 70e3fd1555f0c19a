"""Layers that hold the period or the memory are split, and only those."""

from __future__ import annotations

import pytest

import cnn
from benchmarks.agreement import LIMIT
from benchmarks.hybrid import VGG16, YOLOV2, measure
from cnn.rewrite.rewrites import Slices
from ga.hybrid.strategy import Hybrid, HybridEffort
from partition.planner import plan_solution
from partition.strategies.base import Problem
from partition.strategies.units import BLOCK
from tests.partition.rewriting_contract import RewritingContract, chain_model
from tests.partition.strategy_contract import equal

QUICK = HybridEffort(chains=16, most_steps=100, finalists=3)


class TestHybrid(RewritingContract):
    strategy = Hybrid(QUICK)

    def test_what_need_not_be_split_stays_whole(self) -> None:
        network = self.chain(*[10**9] * 8)
        assert self.solve(network, equal(2)).rewrites == ()

    def test_a_single_heavy_layer_is_split(self) -> None:
        model = chain_model(1, is_heavy=True, channels=64)
        problem = Problem(model.network, equal(4), model=model)
        solution = Hybrid(QUICK).solve(problem)
        plan = plan_solution(problem, solution, "hybrid")
        assert {phase.device for phase in plan.phases} == {"d0", "d1", "d2", "d3"}

    def test_slices_are_whole_blocks_as_engines_compute_them(self) -> None:
        model = chain_model(3, is_heavy=True, channels=96)
        solution = Hybrid(QUICK).solve(Problem(model.network, equal(2), model=model))
        slices = [rewrite for rewrite in solution.rewrites if isinstance(rewrite, Slices)]
        assert slices
        assert not any(size % BLOCK for rewrite in slices for size in rewrite.channels)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "is_run"), [(VGG16, False), (YOLOV2, True)])
def test_it_goes_on_where_the_paper_stops(path: str, is_run: bool) -> None:
    row = measure(path, cnn.read(path), 10, run=is_run)
    assert row.saving_percent >= 88.9
    assert row.bound >= 9.4
    assert row.agreement is None or row.agreement <= LIMIT
