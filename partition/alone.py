"""One device alone, to which speed-ups and savings of memory are relative.

It is the device on which the whole network has the shortest period, as if its memory sufficed; of
several, the one that holds least, and then the first. All commands that state a saving use this
module, so that they state the same one for a plan.
"""

from __future__ import annotations

from dataclasses import replace

from partition.plan import Plan
from partition.planner import foreseen_plan
from partition.pricing.memory_budget import IDLE_AGENT_BYTES
from partition.strategies.alike import kinds_of
from partition.strategies.base import Problem, Solution
from partition.wire import RAW

ONE_DEVICE = "one device"
"""The strategy of a plan that computes everything on one device."""


def solutions_alone(problem: Problem) -> list[Solution]:
    """Return a solution for one device of each kind, which has everything; pins may exclude it."""
    pinned = set(problem.pins.values())
    names = [problem.devices[first].name for first, *_ in kinds_of(problem)]
    return [
        Solution({layer.name: name for layer in problem.network.layers}, f"everything on {name}")
        for name in names
        if pinned <= {name}
    ]


def plan_alone(problem: Problem) -> Plan:
    """Return the plan of the whole network on one device alone; see the module's docstring."""
    devices = tuple(replace(device, memory_bytes=None) for device in problem.devices)
    free = replace(problem, devices=devices, pins={}, wire=RAW)
    plans = [foreseen_plan(free, each, ONE_DEVICE) for each in solutions_alone(free)]
    return min(plans, key=lambda plan: (plan.period_s, fullest_bytes(plan)))


def alone_as_json(alone: Plan) -> dict[str, str | float | int]:
    """Return the figures of one device alone as JSON-like data."""
    return {
        "device": alone.phases[0].device,
        "period_s": alone.frame_s,
        "memory_bytes": fullest_bytes(alone),
    }


def fullest_bytes(plan: Plan) -> int:
    """Return the predicted memory of the plan's device that holds most."""
    return max(memory.total_bytes for memory in plan.memory.values())


def fullest_eq2_bytes(plan: Plan) -> int:
    """Return the memory by Eq. 2 of Tang & Stefanov of the plan's device that holds most."""
    return max(memory.eq2_bytes for memory in plan.memory.values())


def beside_idle_bytes(plan: Plan) -> int:
    """Return what the fullest device of a plan holds in addition to an idle agent."""
    return fullest_bytes(plan) - IDLE_AGENT_BYTES


def saved_percent(held_bytes: int, alone_bytes: int) -> float:
    """Return how much less than one device alone the fullest device holds; 0 if that is nothing.

    >>> saved_percent(60, 80)
    25.0
    """
    return 100 * (1 - held_bytes / alone_bytes) if alone_bytes else 0.0


def saved_text(percent: float) -> str:
    """Return a saving in words.

    >>> saved_text(25.0), saved_text(-70.7)
    ('25.0 % less', '70.7 % more')
    """
    return f"{abs(percent):.1f} % {'less' if percent >= 0 else 'more'}"
