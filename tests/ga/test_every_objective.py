"""The plan for an objective is no worse in it than the plans for the others."""

from __future__ import annotations

import pytest

from ga import nsga
from ga.hybrid.strategy import Hybrid, HybridEffort
from ga.vertical import Effort, Vertical
from partition.devices import Device
from partition.objective import Objective
from partition.plan import Plan
from partition.planner import plan_solution
from partition.prediction.timing import energy_j, loads
from partition.strategies.base import Problem, Strategy
from partition.strategies.contiguous.stages import KStage
from partition.strategies.exact.strategy import Exact
from tests.partition.rewriting_contract import residual_model

DEVICES = (
    Device("fast", macs_per_s=4e8, busy_w=20, idle_w=1),
    Device("slow", macs_per_s=1e8, busy_w=3, idle_w=1, link_bytes_per_s=3e7),
    Device("mid", macs_per_s=2e8, busy_w=8, idle_w=1),
)
QUICK = Effort(nsga.Parameters(16, 10), chains=16, most_steps=100)
SPLITTING = HybridEffort(chains=8, least_steps=20, most_steps=40, finalists=2, refinements=1)


def value(objective: Objective, plan: Plan) -> float:
    """What the objective is about; of latency, a frame's that finds the pipeline empty."""
    match objective:
        case "period":
            return plan.period_s
        case "memory":
            return max(memory.eq2_bytes for memory in plan.memory.values())
        case "energy":
            return energy_j(plan)
    load = loads(plan.devices, plan.phases, plan.channels, plan.dealing)
    return sum(
        load[device.name].busy_s + load[device.name].received_bytes / device.link_bytes_per_s
        for device in plan.devices
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "objectives"),
    [
        (Vertical(effort=QUICK), ("period", "memory", "latency", "energy")),
        (Exact(), ("period", "memory", "latency", "energy")),
        (KStage(), ("period", "latency", "energy")),
        (Hybrid(SPLITTING), ("memory", "latency", "energy")),  # period: with memory, in one plan
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_every_objective_is_what_is_made_small(
    strategy: Strategy, objectives: tuple[Objective, ...]
) -> None:
    model = residual_model(2)
    plans = {}
    for objective in objectives:
        problem = Problem(model.network, DEVICES, objective=objective, model=model)
        solution = strategy.solve(problem)
        plans[objective] = plan_solution(problem, solution, "")
    for objective in objectives:
        values = {other: value(objective, plan) for other, plan in plans.items()}
        assert values[objective] <= min(values.values()) * (1 + 1e-6), values
