"""The default strategy takes what is best by the objective, and says what one device would do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from ga import nsga
from ga.auto import Auto
from ga.both import ALIKE, columns, divides, order
from ga.hybrid.strategy import Hybrid, HybridEffort
from ga.ranking import ranking
from ga.runs.search import RunEffort
from ga.runs.strategy import Runs
from ga.vertical import Effort, Vertical
from partition.devices import Device, slower
from partition.errors import PartitionError
from partition.objective import Objective
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Candidate, Problem, Solution, Strategy
from partition.strategies.batch_split import BatchSplit
from partition.strategies.contiguous.sequential import Sequential
from tests.partition.networks import chain, residual
from tests.partition.rewriting_contract import RewritingContract, chain_model
from tests.partition.strategy_contract import MB, equal

QUICK = Vertical(
    effort=Effort(nsga.Parameters(16, 10), chains=16, most_steps=100, descents=1, descent=5)
)
SPLITTING = Hybrid(HybridEffort(chains=8, least_steps=20, most_steps=40, finalists=2))


class TestAuto(RewritingContract):
    strategy = Auto((Sequential(), QUICK), SPLITTING)

    def test_memory_limits_are_respected_where_they_can_be(self) -> None:
        network = chain(*[10**6] * 8, weights=[5 * MB] * 8)
        devices = (Device("small", 91 * MB), Device("roomy", 250 * MB))
        problem = Problem(network, devices)
        plan_solution(problem, self.strategy.solve(problem), "auto")

    def test_without_a_model_there_is_nothing_to_rewrite(self) -> None:
        solution = self.strategy.solve(Problem(residual(2), equal(2)))
        assert not solution.rewrites


@pytest.mark.slow
def test_whole_copies_are_taken_where_there_is_nothing_to_cut() -> None:
    model = chain_model(1, is_heavy=True)
    problem = Problem(model.network, equal(2), model=model)
    solution = Auto((Sequential(), BatchSplit())).solve(problem)
    assert solution.explanation.startswith("batch-split (compared with sequential")
    assert set(solution.assignment.values()) == {"d0", "d1"}
    assert not divides(plan_solution(problem, solution, ""))


class Regretful(Sequential):
    """Has found a shorter period than that of its choice."""

    period_s = math.inf

    def solve(self, problem: Problem) -> Solution:
        chosen = super().solve(problem)
        return replace(chosen, front=(Candidate(chosen.assignment, self.period_s, 0.0, 0.0),))


@pytest.mark.slow
def test_a_plan_that_no_candidate_has_does_not_make_copies_win() -> None:
    model = chain_model(7, is_heavy=True)
    devices = tuple(Device(f"d{i}", macs_per_s=1e9, wire_is_free=True) for i in range(2))
    problem = Problem(model.network, devices, model=model)

    def period_s(strategy: Strategy) -> float:
        solution = strategy.solve(problem)
        return plan_solution(problem, solution, "").period_s

    copied_s, limit = period_s(BatchSplit()), 1 + problem.within
    assert copied_s * limit < period_s(Sequential()) < copied_s * limit**2
    regretful = Regretful()
    regretful.period_s = copied_s * limit * 1.001
    solution = Auto((regretful, BatchSplit()), splitting=Sequential()).solve(problem)
    assert solution.explanation.startswith("sequential (compared with ")


@pytest.mark.parametrize(
    ("layers", "count", "copies"),
    [(2, 2, False), (5, 2, False), (7, 2, False), (3, 3, False), (3, 2, True), (1, 2, True)],
)
def test_a_plan_made_in_a_hurry_obeys_the_preference_of_the_full_search(
    layers: int, count: int, copies: bool
) -> None:
    """Whole copies are the fastest here, by up to twice, and save no memory. A run that ends before
    the search has saved as much memory as a longer one."""
    model = chain_model(layers, is_heavy=True)
    devices = tuple(Device(f"d{i}", macs_per_s=1e9, wire_is_free=True) for i in range(count))
    problem = Problem(model.network, devices, model=model)

    def planned(strategy: Strategy) -> Plan:
        return plan_solution(problem, strategy.solve(problem), "")

    usual = Auto((Sequential(), BatchSplit()), splitting=None)
    hurried, searched = planned(Auto.in_a_hurry()), planned(usual)
    assert (divides(hurried), divides(searched)) == (not copies, not copies)
    found = [columns(problem, each) for each in (hurried, searched, planned(BatchSplit()))]
    assert order(problem, found)[0] in (0, 1)
    assert found[0].memory <= found[1].memory * (1 + ALIKE)


def test_the_choice_and_its_rivals_are_named() -> None:
    solution = Auto((Sequential(), QUICK)).solve(Problem(residual(16), equal(4)))
    named = ("vertical (compared with sequential)", "sequential (compared with vertical)")
    assert solution.explanation.startswith(named)
    assert len(set(solution.assignment.values())) == 4


def test_for_both_the_least_memory_within_the_tolerance_is_chosen_and_both_columns_are_said() -> (
    None
):
    network = chain(*[10**9] * 8, *[10**8] * 8, weights=[10**4] * 8 + [16 * MB] * 8)
    problem = Problem(network, equal(4))
    effort = RunEffort(chains=36, rounds=2, work=1e6, nsga=nsga.Parameters(16, 3), exact=12)
    solution = Auto((Sequential(), QUICK), runs=lambda known_s: Runs(effort, known_s)).solve(
        problem
    )
    several = [solution, *solution.others]
    plans = [plan_solution(problem, each, "") for each in several]
    assert order(problem, [columns(problem, plan) for plan in plans])[0] == 0
    assert solution.explanation.startswith(("runs (compared with ", "vertical (compared with "))
    assert "shortest found, and the fullest device holds" in solution.explanation
    assert "less than one with the whole network" in solution.explanation


@pytest.mark.slow
def test_for_the_papers_objective_the_network_is_divided_and_equation_2_is_said() -> None:
    model = chain_model(4, is_heavy=True)
    problem = Problem(model.network, equal(3), objective="paper", model=model)
    solution = Auto((Sequential(), BatchSplit(), QUICK), SPLITTING).solve(problem)
    assert "batch-split" not in solution.explanation
    plan = plan_solution(problem, solution, "")
    assert divides(plan)
    held = max(each.eq2_bytes for each in plan.memory.values())
    assert f"{held / 1e6:.1f} MB by Eq. 2" in solution.explanation


def test_one_device_is_chosen_where_links_cost_more_than_they_give() -> None:
    devices = tuple(Device(f"d{i}", link_bytes_per_s=1e4) for i in range(3))
    solution = Auto((Sequential(), QUICK)).solve(Problem(residual(4), devices))
    assert len(set(solution.assignment.values())) == 1
    assert "one device alone" in solution.explanation


def test_one_device_is_chosen_where_nothing_has_a_use_for_another() -> None:
    devices = tuple(Device(f"d{i}", launcher_bytes_per_s=1e3) for i in range(3))
    model = chain_model(2)
    problem = Problem(model.network, devices, model=model)
    solution = Auto((Sequential(), BatchSplit())).solve(problem)
    assert len(set(solution.assignment.values())) == 1
    assert solution.explanation.startswith("one device alone")


def test_devices_that_share_a_core_are_told_to_be_no_faster() -> None:
    shared = tuple(Device(f"d{i}", host="box", host_cores=1) for i in range(3))
    network = chain(*[10**9] * 9, weights=[5 * MB] * 9)
    solution = Auto((Sequential(), QUICK)).solve(Problem(network, shared))
    assert len(set(solution.assignment.values())) == 3
    assert "one device alone, d0, would do" in solution.explanation


@pytest.mark.parametrize(
    ("last", "used"), [(MB, {"fast"}), (200 * MB, {"fast", "slow"})], ids=["little", "much"]
)
def test_a_far_slower_device_takes_part_only_if_that_saves_memory(
    last: int, used: set[str]
) -> None:
    devices = (Device("fast"), slower(Device("slow"), 10.0))
    network = chain(*[10**9] * 9, 2 * 10**8, weights=[20 * MB] * 9 + [last])
    solution = Auto((Sequential(), QUICK)).solve(Problem(network, devices))
    assert set(solution.assignment.values()) == used
    assert ("one device alone, fast, does" in solution.explanation) == (used == {"fast"})


@pytest.mark.parametrize("objective", ["latency", "energy", "memory"])
def test_other_objectives(objective: Objective) -> None:
    network = chain(*[10**9] * 6, weights=[20 * MB] * 6)
    solution = Auto((Sequential(), QUICK)).solve(Problem(network, equal(3), objective=objective))
    assert len(set(solution.assignment.values())) == (3 if objective == "memory" else 1)


def test_what_fits_nowhere_is_refused_in_a_sentence() -> None:
    network = chain(1, 1, weights=[10**9, 10**9])
    with pytest.raises(PartitionError, match="would hold"):
        Auto((Sequential(), QUICK)).solve(Problem(network, equal(2, 100 * MB)))


def test_memory_is_what_devices_hold_channels_included() -> None:
    """Both plans give every device half of the weights and of what Eq. 2 counts; in one of them
    every tensor is in a channel, several times at once."""
    network = chain(*[10**9] * 8, weights=[MB // 4] * 8, elements=MB)
    problem = Problem(network, equal(2), objective="memory")
    rank = ranking(problem)

    def ranked(devices: str) -> float:
        assignment = {f"l{number}": f"d{device}" for number, device in enumerate(devices)}
        solution = Solution(assignment, "")
        return rank(plan_solution(problem, solution, "auto"))

    assert ranked("00001111") < ranked("01010101") - 0.4
