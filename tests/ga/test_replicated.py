"""Pipelines side by side: devices in groups alike, every group whole, frames as groups are fast."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cnn.rewrite.rewrites import Copies, copy_name, original_name
from ga import nsga
from ga.auto import Auto
from ga.ranking import STAGE_SPREAD, expected_period_s
from ga.replicated import Replicated, frames_per_pipeline, groups_of
from ga.vertical import Effort, Vertical
from partition.devices import Device
from partition.errors import PartitionError
from partition.planner import plan_solution
from partition.prediction.timing import with_measured_phases
from partition.strategies.base import Problem, Solution
from partition.strategies.batch_split import LONGEST_CYCLE
from partition.strategies.contiguous.sequential import Sequential
from tests.partition.networks import chain
from tests.partition.rewriting_contract import RewritingContract, chain_model
from tests.partition.strategy_contract import MB, equal

QUICK = Vertical(
    effort=Effort(nsga.Parameters(8, 4), chains=4, most_steps=20, descents=1, descent=2)
)
ONE = Replicated(search=QUICK)
TWO = Replicated(fewest=2, search=QUICK)


def fast(name: str, times: float) -> Device:
    return Device(name, macs_per_s=times * 2e10, memory_bytes_per_s=times * 1e10)


class TestReplicated(RewritingContract):
    strategy = ONE


def two_pipelines(problem: Problem) -> Solution:
    solution = TWO.solve(problem)
    assert [type(rewrite) for rewrite in solution.rewrites] == [Copies]
    return solution


def test_every_group_has_a_whole_copy_to_itself() -> None:
    model = chain_model(4, is_heavy=True)
    solution = two_pipelines(Problem(model.network, equal(4), model=model))
    assert solution.rewrites == (Copies((1, 1)),)
    owners = {
        copy: {solution.assignment[copy_name(layer.name, copy)] for layer in model.network.layers}
        for copy in (1, 2)
    }
    assert {len(devices) for devices in owners.values()} == {2}
    assert not owners[1] & owners[2]
    assert Counter(map(original_name, solution.assignment)) == {
        layer.name: 2 for layer in model.network.layers
    }


def test_unequal_groups_get_frames_as_they_are_fast() -> None:
    model = chain_model(6, is_heavy=True)
    devices = tuple(Device(f"d{i}", firing_s=0.0, wire_is_free=True) for i in range(5))
    solution = two_pipelines(Problem(model.network, devices, model=model))
    ((three, two),) = [
        rewrite.frames for rewrite in solution.rewrites if hasattr(rewrite, "frames")
    ]
    assert (three, two) == (3, 2)


def test_the_fast_and_the_slow_are_spread_over_groups() -> None:
    devices = tuple(fast(f"d{i}", times) for i, times in enumerate((1, 1, 4, 4)))
    problem = Problem(chain(*[10**9] * 8), devices)
    assert sorted(groups_of(problem, 2)) == [(0, 3), (1, 2)] or sorted(groups_of(problem, 2)) == [
        (0, 2),
        (1, 3),
    ]


@given(st.lists(st.floats(1, 8), min_size=2, max_size=12), st.integers(1, 6))
def test_groups_have_every_device_once_and_differ_by_one_at_most(
    speeds: list[float], count: int
) -> None:
    count = min(count, len(speeds))
    devices = tuple(fast(f"d{i}", times) for i, times in enumerate(speeds))
    groups = groups_of(Problem(chain(10**9), devices), count)
    assert sorted(number for group in groups for number in group) == list(range(len(speeds)))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


@given(st.lists(st.floats(0.01, 0.05), min_size=2, max_size=6))
def test_no_pipeline_is_left_out_and_the_cycle_is_short(periods: list[float]) -> None:
    frames = frames_per_pipeline(periods)
    assert min(frames) >= 1
    assert sum(frames) <= LONGEST_CYCLE
    period = max(count * own for count, own in zip(frames, periods, strict=True)) / sum(frames)
    assert period <= max(periods) / len(periods) * (1 + 1e-9)  # dealing one to each
    assert period >= 1 / sum(1 / own for own in periods) * (1 - 1e-9)


def test_pins_leave_one_pipeline() -> None:
    model = chain_model(4, is_heavy=True)
    problem = Problem(model.network, equal(4), {"l1": "d2"}, model=model)
    assert ONE.solve(problem).assignment["l1"] == "d2"
    with pytest.raises(PartitionError, match="pins"):
        TWO.solve(problem)


@pytest.mark.slow
def test_where_no_group_holds_the_network_one_pipeline_is_left() -> None:
    model = chain_model(8, channels=384)  # 42 MB of weights

    def fullest(strategy: Replicated, limit: int | None) -> int:
        devices = tuple(Device(f"d{i}", limit) for i in range(4))
        problem = Problem(model.network, devices, model=model)
        solution = strategy.solve(problem)
        assert bool(solution.rewrites) == (strategy is TWO)
        plan = plan_solution(problem, solution, strategy.name)
        return max(memory.total_bytes for memory in plan.memory.values())

    limit = fullest(TWO, None) - MB
    with pytest.raises(PartitionError, match="would hold"):
        fullest(TWO, limit)
    assert fullest(ONE, limit) <= limit


@pytest.mark.slow
def test_auto_takes_pipelines_side_by_side_on_several_machines() -> None:
    """Three layers keep three devices of six busy, and all of them in two pipelines."""
    model = chain_model(3, is_heavy=True)
    for host, taken in ((None, True), ("box", False)):
        devices = tuple(replace(fast(f"d{i}", 0.01), host=host, host_cores=2) for i in range(6))
        problem = Problem(model.network, devices, model=model, objective="period")
        solution = Auto((Sequential(), TWO)).solve(problem)
        assert solution.explanation.startswith("replicated (compared with sequential") == taken


def test_the_slowest_of_many_stages_is_expected_to_be_slower_than_of_few() -> None:
    network = chain(*[10**9] * 8)

    def expected(count: int) -> float:
        problem = Problem(network, tuple(fast(f"d{i}", 1) for i in range(count)))
        assignment = {f"l{i}": f"d{i * count // 8}" for i in range(8)}
        plan = plan_solution(problem, Solution(assignment, ""), "")
        exact = with_measured_phases(plan, {each.name: each.predicted_s for each in plan.phases})
        assert expected_period_s(exact) == pytest.approx(plan.period_s)
        return expected_period_s(plan) / plan.period_s

    # The mean of the largest of n standard normal variables (any table of order statistics).
    for count, largest in ((2, 0.5642), (4, 1.0294), (8, 1.4236)):
        assert expected(count) == pytest.approx(1 + largest * STAGE_SPREAD, rel=0.005)
