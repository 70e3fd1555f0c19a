"""Plans are balanced by parts of layers, and only where uneven loads determine the period."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from benchmarks.agreement import LIMIT, agreements, random_frame
from ga import nsga
from ga.both import columns
from ga.runs.balancing import Balanced, balanced, even_period_s, is_uneven
from ga.runs.search import RunEffort
from ga.runs.strategy import Runs
from partition.devices import Device
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution
from tests.partition.rewriting_contract import chain_model, read, residual_proto
from tests.partition.strategy_contract import MB, equal

UNEVEN = {"l0": "d0", "l1": "d0", "l2": "d1"}

SLOW = 1e7
"""Multiply-accumulates per second of devices on which nothing but layers takes long."""


def problem(speeds: Sequence[float] = (1, 1), **changes: object) -> Problem:
    """Three equal convolutions, 128 channels each."""
    model = chain_model(3, channels=128)
    devices = [Device(f"d{n}", macs_per_s=SLOW * speed) for n, speed in enumerate(speeds)]
    return Problem(model.network, tuple(devices), model=model, **changes)  # type: ignore[arg-type]


def plan_of(given: Problem, assignment: Mapping[str, str]) -> Plan:
    return plan_solution(given, Solution(assignment, ""), model_digest="", strategy="runs")


def balance(given: Problem, assignment: Mapping[str, str], steps: int = 60) -> list[Balanced]:
    assert given.model is not None
    return balanced(given, given.model, [plan_of(given, assignment)], steps, lambda _: None)


def fastest(given: Problem, assignment: Mapping[str, str]) -> Balanced:
    return min(balance(given, assignment), key=lambda each: each.plan.period_s)


def test_a_layer_that_two_devices_share_makes_their_loads_even() -> None:
    given = problem()
    start = plan_of(given, UNEVEN)
    assert is_uneven(given, start)
    found = fastest(given, UNEVEN)
    assert found.solution.rewrites
    assert found.plan.period_s < 0.8 * start.period_s
    assert found.plan.period_s < 1.05 * even_period_s(given, start)


def test_faster_devices_get_more() -> None:
    given = problem((4, 1))
    uneven = {"l0": "d0", "l1": "d1", "l2": "d1"}
    start = plan_of(given, uneven)
    found = fastest(given, uneven)
    assert found.plan.period_s < 0.35 * start.period_s
    assert found.plan.period_s < 1.1 * even_period_s(given, start)


def test_what_is_returned_is_planned_and_no_plan_betters_another() -> None:
    given = problem()
    found = balance(given, UNEVEN)
    for one in found:
        plan = plan_solution(given, one.solution, model_digest="", strategy="runs")
        assert columns(given, plan) == one.figures
        for other in found:
            better = (
                other.figures.period_s < one.figures.period_s
                and other.figures.memory < one.figures.memory
                and other.figures.tensors < one.figures.tensors
            )
            assert not better


def test_pinned_layers_stay_whole_where_they_are() -> None:
    given = problem(pins={"l1": "d0"})
    for each in balance(given, UNEVEN):
        assert each.solution.assignment["l1"] == "d0"


def test_what_does_not_fit_is_not_returned() -> None:
    model = chain_model(3, channels=384)  # 5 MB of weights each
    devices = Device("d0", 300 * MB), Device("d1", 56 * MB)
    given = Problem(model.network, devices, model=model)
    alone = dict.fromkeys(("l0", "l1", "l2"), "d0")
    assert all(
        each.plan.memory["d1"].total_bytes <= 56 * MB
        for each in balance(given, {**alone, "l2": "d1"})
    )


def test_an_even_plan_is_left_as_it_is() -> None:
    given = problem((1, 1, 1))
    assert not is_uneven(given, plan_of(given, {"l0": "d0", "l1": "d1", "l2": "d2"}))


def test_uneven_loads_do_not_matter_where_a_link_determines_the_period() -> None:
    model = chain_model(3, is_heavy=True)
    given = Problem(
        model.network,
        tuple(Device(f"d{i}", link_bytes_per_s=1e5, wire_is_free=True) for i in range(2)),
        model=model,
    )
    assert not is_uneven(given, plan_of(given, UNEVEN))


def test_the_same_seed_gives_the_same_plans() -> None:
    one, other = ([each.solution for each in balance(problem(), UNEVEN)] for _ in range(2))
    assert one == other


@pytest.mark.parametrize("devices", [2, 5])
def test_runs_balances_and_computes_what_the_network_computes(devices: int, tmp_path: Path) -> None:
    model = read(residual_proto(3), tmp_path)
    given = Problem(model.network, equal(devices), model=model, objective="period")
    effort = RunEffort(chains=36, rounds=2, work=1e6, nsga=nsga.Parameters(16, 3), exact=12)
    solution = Runs(effort).solve(given)
    rewritten = model.rewritten(solution.rewrites)
    (found,) = agreements(rewritten, [solution.assignment], random_frame(model.network, 0))
    assert found.crossing <= LIMIT
    front = np.array([(each.period_s, each.memory_bytes) for each in solution.front])
    assert (np.diff(front[:, 0]) >= 0).all()
