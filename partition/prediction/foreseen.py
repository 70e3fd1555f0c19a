"""Predicts the period and the latency of a plan's run by simulation, before it runs.

The closed forms of the period leave out the launcher's work and the time in which threads wake, and
these dominate in a network that computes for microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from partition.measured.profiles import Profile
from partition.plan import Plan
from partition.prediction.simulation import predict
from partition.pricing.run_costs import RunCosts

FORESEEN_FIRINGS = 30_000
"""The largest simulation of a plan before it runs, which takes some tenths of a second."""


@dataclass(frozen=True)
class RunFacts:
    """How a plan will be run.

    `launcher_on` is the `host` of the devices on the launcher's machine, and `cpus` the CPUs to
    which agents started there are bound. In `strict` order, phases fire in turn.
    """

    order: Literal["pipelined", "strict"] = "pipelined"
    launcher_on: str = ""
    cpus: Mapping[str, Sequence[int]] = field(default_factory=dict)


def foreseen(plan: Plan, run: RunFacts, profile: Profile | None = None) -> Plan:
    """Return `plan` with the period and the latency of a simulated run.

    Messages and bytes cost what `profile` has, or else usual values. A plan with too many phases to
    simulate the filling of its pipeline is returned unchanged. The period is never shorter than
    that of the closed forms, which `plan` has.
    """
    nodes = {} if profile is None else profile.nodes
    costs = RunCosts.known(
        plan.devices,
        host=run.launcher_on,
        cpus=run.cpus,
        message_s={name: node.message_s for name, node in nodes.items()},
        byte_s={name: node.byte_s for name, node in nodes.items()},
    )
    deepest = max((phase.skew for phase in plan.phases), default=0)
    frames = 24 + 3 * deepest + len(plan.dealing)
    if frames * firings(plan) > FORESEEN_FIRINGS:
        return plan
    found = predict(plan, costs, order=run.order, frames=frames)
    return replace(plan, period_s=max(plan.period_s, found.period_s), latency_s=found.latency_s)


def firings(plan: Plan) -> int:
    """Return about how many firings a simulated frame takes."""
    return 14 * (len(plan.phases) + 1)
