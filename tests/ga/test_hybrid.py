"""Layers that hold the period or the memory are split, and only those."""

from __future__ import annotations

import pytest

import cnn
from benchmarks.table3.paper import NETWORKS
from cnn.rewrite.rewrites import Slices
from ga.hybrid.strategy import Hybrid, HybridEffort
from partition.planner import plan_solution
from partition.prediction.timing import loads
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import Problem
from partition.strategies.units import BLOCK
from tests.agreement.comparison import LIMIT, agreements, random_frame
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
@pytest.mark.further
@pytest.mark.parametrize(("name", "is_run"), [("vgg16", False), ("yolov2", True)])
def test_it_continues_where_the_paper_stops(name: str, is_run: bool) -> None:
    """Ten devices save nine tenths by Eq. 2, and the busiest one has about a tenth of the work."""
    model = cnn.read(NETWORKS[name])
    problem = Problem(model.network, equal(10), model=model, objective="period")
    plan = plan_solution(problem, Hybrid().solve(problem), "hybrid")
    fullest = max(memory.eq2_bytes for memory in plan.memory.values())
    assert fullest <= (1 - 0.889) * layer_beta_bytes(model.network).sum()
    load = loads(problem.devices, plan.phases, plan.channels)
    busiest_s = max(each.compute_s for each in load.values())
    assert problem.costs.layer_s[:, 0].sum() >= 9.4 * busiest_s
    if is_run:
        frame = random_frame(model.network, seed=0)
        (ran,) = agreements(model.rewritten(plan.rewrites), [plan.assignment], frame)
        assert ran.crossing <= LIMIT
