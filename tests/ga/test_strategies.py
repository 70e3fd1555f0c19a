"""The genetic strategies keep the contract of all strategies, and what each promises besides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ga import nsga, paper
from ga.paper import VerticalPaper, saving_percent
from ga.strategies import STRATEGIES, find_strategy
from ga.vertical import Effort, Vertical
from partition.devices import Device
from partition.errors import PartitionError
from partition.strategies.base import Problem
from partition.strategies.contiguous.sequential import contiguous_cut
from tests.partition.networks import chain, residual
from tests.partition.strategy_contract import MB, StrategyContract, equal

QUICK = Effort(nsga.Parameters(individuals=16, generations=10), chains=16, most_steps=100)


class TestVertical(StrategyContract):
    strategy = Vertical(effort=QUICK)

    @pytest.mark.slow
    def test_it_balances_work_and_weights_where_contiguous_cuts_cannot(self) -> None:
        problem = Problem(residual(16), equal(4))
        solution = Vertical().solve(problem)
        found = problem.costs.evaluate(problem.numbers(solution.assignment)[None])
        cut = problem.costs.evaluate(contiguous_cut(problem)[0][None])
        fair = cut.weight_bytes.sum() / 4
        assert cut.weight_bytes.max() > 2 * fair
        assert found.weight_bytes.max() < 1.25 * fair
        assert problem.costs.layer_s[:, 0].sum() / 4 > 0.9 * found.compute_s.max()
        assert found.phases.sum() <= 24  # longest processing time first: 61

    def test_a_solution_has_a_record_of_each_generation(self) -> None:
        generations = self.strategy.solve(Problem(residual(3), equal(3))).generations
        assert [row["generation"] for row in generations] == [*range(1, 11)]
        assert all(row["least_period_s"] > 0 for row in generations)

    def test_what_found_the_solution_is_said(self) -> None:
        problem = Problem(residual(6), equal(3))
        bred = self.strategy.solve(problem).explanation
        assert bred.startswith(("found by annealing", "found by descent", "found by NSGA-II"))
        assert "NSGA-II priced 160 states, annealing " in bred
        effort = replace(QUICK, nsga=replace(QUICK.nsga, generations=0))
        annealed = Vertical(effort=effort).solve(problem).explanation
        assert not annealed.startswith("found by NSGA-II")
        assert "NSGA-II priced 0 states" in annealed

    def test_one_fast_device_does_a_tiny_network_alone(self) -> None:
        network = chain(1000, 1000, 1000)
        assignment = self.strategy.solve(Problem(network, equal(3))).assignment
        assert len(set(assignment.values())) == 1

    def test_a_network_that_fits_no_single_device_is_spread(self) -> None:
        network = chain(*[10**6] * 12, weights=[2 * MB] * 12)
        # 96 MB of weights in twelve layers; beside the engine, each device holds four of them.
        solution = self.solve(network, equal(4, 105 * MB))
        assert len(set(solution.assignment.values())) >= 3

    def test_what_fits_nowhere_is_admitted(self) -> None:
        network = chain(1, 1, weights=[10**9, 10**9])
        solution = self.strategy.solve(Problem(network, equal(2, 100 * MB)))
        assert "no solution was found that fits" in solution.explanation

    def test_where_pins_decide_everything_nothing_is_searched(self) -> None:
        solution = self.strategy.solve(Problem(chain(1, 1), equal(2), {"l0": "d1", "l1": "d0"}))
        assert solution.assignment == {"l0": "d1", "l1": "d0"}
        assert solution.explanation == "no layer has a choice of device"

    def test_pins_that_no_contiguous_cut_respects_are_respected(self) -> None:
        self.solve(chain(*[10**9] * 4), equal(2), {"l0": "d0", "l1": "d1", "l2": "d0"})


class TestVerticalPaper(StrategyContract):
    strategy = VerticalPaper(paper.PaperParameters(individuals=100, generations=20))

    def test_it_balances_equation_2(self) -> None:
        problem = Problem(residual(16), equal(4))
        solution = self.strategy.solve(problem)
        saving = saving_percent(problem, problem.numbers(solution.assignment))
        assert saving > 74.5
        assert f"Eq. 2 saves {saving:.2f} %" in solution.explanation

    def test_limits_that_its_balance_exceeds_are_respected_all_the_same(self) -> None:
        network = chain(*[1] * 10, weights=[MB] * 10)
        devices = (Device("small", 61 * MB), Device("large", 200 * MB))
        assignment = self.solve(network, devices).assignment
        assert 0 < list(assignment.values()).count("small") < 5

    def test_an_optimum_is_called_one(self) -> None:
        network = chain(*[1] * 4, weights=[1000] * 4)
        solution = self.strategy.solve(Problem(network, equal(2)))
        assert solution.explanation.endswith("proved optimal")

    def test_what_found_the_assignment_is_said(self) -> None:
        problem = Problem(residual(16), equal(5))
        assert "20 generations lowered φ from " in self.strategy.solve(problem).explanation
        parameters = paper.PaperParameters(100, 0, seeded=paper.SEEDED)
        solution = VerticalPaper(parameters, "vertical-paper-seeded").solve(problem)
        assert (
            "the best of longest-first and random assignments, which 0 generations did not improve"
            in solution.explanation
        )


def test_strategies_are_found_by_name() -> None:
    assert {"vertical", "vertical-paper", "sequential", "horizontal", "manual"} <= {*STRATEGIES}
    assert all(find_strategy(name).name == name for name in STRATEGIES)


def test_an_unknown_strategy_is_answered_with_the_known_ones() -> None:
    with pytest.raises(PartitionError, match="'diagonal'; choose one of auto, runs, vertical, "):
        find_strategy("diagonal")
