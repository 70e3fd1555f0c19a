"""The memory limits of nodes that have none in `cluster.yaml`: what their agents report.

An agent reports the memory that it could still allocate when it was greeted
(`nodes.host.control_groups.available_bytes`): the least of what the machine and its control groups
have left, which leaves out what others use. It may hold its share of that in addition to what it
holds already. Agents of one machine report the same memory, so they share it evenly, once the nodes
there that have their own limit have theirs.

These limits are known only while agents run. So a plan is first made without them, as
`launch --plan-only` makes it, and made again within them only if it exceeds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from launcher.config.node import NodeConfig
from launcher.plan.devices import Facts
from launcher.plan.machines import machine_of
from launcher.quantities import megabytes
from nodes.protocol.messages import Welcome
from partition.plan import Plan
from partition.pricing.memory_budget import CODE_BYTES, START_UP_BYTES


def reported_limits(
    nodes: tuple[NodeConfig, ...], welcomes: Mapping[str, Welcome]
) -> dict[str, int]:
    """Return the limits, in bytes, of nodes without `memory` whose agents report what they have.

    Nodes that stand by have no limit.
    """
    limits = {}
    active = [node for node in nodes if not node.standby]
    for node in active:
        welcome = welcomes.get(node.name)
        if node.memory is not None or welcome is None or welcome.available_bytes is None:
            continue
        beside = [other for other in active if machine_of(other) == machine_of(node)]
        promised = sum(
            max(0, other.memory - _held_bytes(welcomes.get(other.name)))
            for other in beside
            if other.memory is not None
        )
        sharing = sum(other.memory is None for other in beside)
        share = max(0, welcome.available_bytes - promised) // sharing
        limits[node.name] = share + _held_bytes(welcome)
    return limits


def _held_bytes(welcome: Welcome | None) -> int:
    """Return what a prediction counts of an idle agent; it does not measure its program code."""
    return 0 if welcome is None else welcome.rss_bytes + CODE_BYTES


def exceeded(plan: Plan, limits: Mapping[str, int]) -> list[str]:
    """Return the nodes on which a plan needs more than the limit, in the plan's order."""
    used = {phase.device for phase in plan.phases}
    return [
        name
        for name, memory in plan.memory.items()
        if name in used and name in limits and memory.total_bytes > limits[name]
    ]


def too_full(limits: Mapping[str, int]) -> dict[str, str]:
    """Return a sentence for each node on which not even an engine could start."""
    return {
        name: f"node {name!r} is too full to be used: its agent reports {megabytes(limit)} "
        f"available, and an engine takes {megabytes(START_UP_BYTES)} to start"
        for name, limit in limits.items()
        if limit < START_UP_BYTES
    }


def within_limits(facts: Facts, limits: Mapping[str, int]) -> Facts:
    """Return `facts` with these limits as the memory of nodes.

    A limit is at least what an engine takes to start, because any plan with less is refused, even
    one that does not use the node.
    """
    enough = {name: max(limit, START_UP_BYTES) for name, limit in limits.items()}
    return replace(facts, memory={**facts.memory, **enough})


def described(limits: Mapping[str, int]) -> str:
    """Return the limits in words, such as `a 812.0 MB, b 640.5 MB`."""
    return ", ".join(f"{name} {megabytes(limit)}" for name, limit in limits.items())
