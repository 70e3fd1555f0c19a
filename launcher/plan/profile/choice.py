"""Chooses among several plans by measurements of their subnets as the engine fuses them.

A search adds up the times of layers, and these sums are wrong where an engine fuses layers. So
`csdf-edge partition profile` takes a strategy's solution, the solutions that it compared and its
Pareto front, measures the best few plans of different shape, and ranks them by simulated runs with
the measured times (`partition.prediction.foreseen`) under the preference of `auto`
(`ga.ranking`). The profile stores the choice together with a digest of the question; for the same
question it replaces the search. If a strategy has proved its solution, or has no other, that
solution is measured and kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from cnn.errors import CnnError
from cnn.rewrite.rewrites import from_data, to_data
from ga.objectives import PREFERENCES
from ga.ranking import ranking
from partition.devices import Device
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import find_plan, foreseen_plan
from partition.strategies.base import Candidate, Problem, Solution, Strategy

Kinds: TypeAlias = Mapping[str, Hashable]
"""Device → its kind; devices with equal values are of one kind."""

Shape: TypeAlias = frozenset[tuple[Hashable, frozenset[str]]]
"""The part of a plan that has to be measured: layers fused on each kind of device."""

FROM_FRONT = 4
"""Plans that are taken from Pareto fronts."""


class MeasuredPlan(BaseModel):
    """A plan whose subnets were all measured, and its period as predicted from these times."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    explanation: str
    assignment: dict[str, str]
    rewrites: tuple[dict[str, Any], ...] = ()
    optimal: bool | None = None
    gap: float | None = None
    phases: int
    fullest_bytes: int = Field(ge=0, description="Memory of the device that needs most")
    period_s: float = Field(gt=0)
    before_s: float = Field(gt=0, description="Period predicted before its subnets were measured")


class MeasuredPlans(BaseModel):
    """The measured plans, the chosen one first; `made_for` is the digest of the question."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    made_for: str
    strategy: str
    plans: tuple[MeasuredPlan, ...] = Field(min_length=1)


def made_for(
    problem: Problem, strategy: str, devices: Sequence[Device], settings: Mapping[str, Any]
) -> str:
    """Return a digest of the question that a choice answers.

    It covers `devices` as the user describes them, the `settings` of the search, and everything
    else that a search for `problem` depends on except the measurements.
    """
    data: list[Any] = [
        strategy,
        problem.objective,
        problem.within,
        problem.seed,
        problem.slack_frames,
        sorted(problem.pins.items()),
        [_described(device) for device in devices],
        asdict(problem.wire),
        settings,
    ]
    if problem.network.batch > 1:  # the choices of older profiles are of single frames
        data.append(problem.network.batch)
    if problem.within_margin:  # never with a profile's choice
        data.append(problem.within_margin)
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _described(device: Device) -> dict[str, Any]:
    """Return a device as data.

    The memory of its engine follows from the engine, which the profile checks as it does the
    threads, and `run_s` from measurements.
    """
    data = asdict(device)
    del data["engine_overhead"], data["run_s"], data["threads"]
    return data


def candidates(problem: Problem, strategy: Strategy, kinds: Kinds) -> list[Plan]:
    """Return plans of different shape to measure, that of the strategy first.

    Raises `PartitionError` if the strategy finds none; other solutions without a plan are skipped.
    """
    found = find_plan(problem, strategy)
    own, plans = found.solution, [found.plan]
    for solution in [] if own.optimal else [*own.others, *_from_fronts(problem, own)]:
        try:
            plan = foreseen_plan(problem, solution, strategy.name)
        except PartitionError:
            continue
        if shape(plan, kinds) not in (shape(other, kinds) for other in plans):
            plans.append(plan)
    return plans


def shape(plan: Plan, kinds: Kinds) -> Shape:
    """Return a plan's `Shape`."""
    return frozenset((kinds[phase.device], frozenset(phase.layers)) for phase in plan.phases)


def ranked(problem: Problem, plans: Sequence[Plan]) -> list[Plan]:
    """Sort plans by the problem's preference, the best first."""
    return sorted(plans, key=ranking(problem))


def measured_plan(plan: Plan, before_s: float) -> MeasuredPlan:
    """Convert a plan to data; `before_s` is its period before its subnets were measured."""
    return MeasuredPlan(
        explanation=plan.explanation,
        assignment=dict(plan.assignment),
        rewrites=tuple(to_data(rewrite) for rewrite in plan.rewrites),
        optimal=plan.optimal,
        gap=plan.gap,
        phases=len(plan.phases),
        fullest_bytes=max(memory.total_bytes for memory in plan.memory.values()),
        period_s=plan.period_s,
        before_s=before_s,
    )


class Decided:
    """The strategy that returns the plan chosen by measurements."""

    def __init__(self, choice: MeasuredPlans, remark: str = "") -> None:
        """The explanation ends with `remark`."""
        self.name = choice.strategy
        self._choice = choice
        self._remark = remark

    def solve(self, problem: Problem) -> Solution:
        """Return the chosen solution (`Strategy.solve`).

        Raises `PartitionError` if this version reads the stored plan differently.
        """
        best, *others = self._choice.plans
        try:
            rewrites = tuple(map(from_data, best.rewrites))
            rewritten = None if problem.model is None else problem.model.rewritten(rewrites)
        except CnnError as error:
            raise PartitionError(
                f"the profile's plan cannot be made any more: {error}; measure again with "
                "csdf-edge partition profile"
            ) from error
        network = problem.network if rewritten is None else rewritten.network
        if set(best.assignment) != set(network.layer):
            raise PartitionError(
                "the profile's plan has other layers than the model; measure again with csdf-edge "
                "partition profile"
            )
        return Solution(
            best.assignment,
            best.explanation + _among(best, others) + self._remark,
            rewrites=rewrites,
            network=network if rewrites else None,
            optimal=best.optimal,
            gap=best.gap,
        )


def _among(best: MeasuredPlan, others: Sequence[MeasuredPlan]) -> str:
    """Say how the plan was chosen; "" if there was no other."""
    if not others:
        return ""
    rates = ", ".join(f"{1 / plan.period_s:.2f}" for plan in others)
    return (
        f"; chosen among {len(others) + 1} plans whose subnets were measured: "
        f"{1 / best.period_s:.2f} frames/s, the others {rates}"
    )


def _from_fronts(problem: Problem, own: Solution) -> list[Solution]:
    """Return the best candidates of all Pareto fronts by the objective's preference."""
    preference = PREFERENCES[problem.objective]

    def rank(candidate: Candidate) -> float:
        costs = np.array([candidate.period_s, candidate.memory_bytes, candidate.wire_bytes + 1])
        weights = np.array([preference.time, preference.memory, preference.traffic])
        return float(weights @ np.log(np.maximum(costs, 1e-12)))

    found: list[Candidate] = []
    for solution in (own, *own.others):
        found += solution.front
    best = sorted(found, key=rank)[:FROM_FRONT]
    return [Solution(each.assignment, "from the Pareto front of what was found") for each in best]
