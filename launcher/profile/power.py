"""Measures the power of nodes whose agents have a meter, while they wait and while they compute.

All agents of a machine measure the same: what the whole machine takes. Waiting is shared evenly by
the nodes of a machine; what one node takes beyond that while it alone computes is its own. Other
nodes do nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from launcher.config.cluster import NodeConfig
from launcher.profile.bench import Bench
from launcher.profile.links import tiny_plan
from nodes.protocol.messages import Stats

LEAST_BUSY = 0.2
"""A node must have computed for at least this share of the time. Otherwise most of the power that
was measured is that of waiting."""


def idle_watts(bench: Bench, configs: Sequence[NodeConfig]) -> dict[str, float]:
    """Return by node the watts of its machine while agents wait for frames.

    Nodes that cannot be measured are missing.
    """
    plan, model = tiny_plan(bench, configs)
    stats = bench.wait_between_frames(plan, model).stats
    watts = {name: machine_w(own) for name, own in stats.items()}
    return {name: found for name, found in watts.items() if found is not None}


def machine_w(stats: Stats) -> float | None:
    """Return the mean watts of the machine between `Start` and `Stop`; None if not measured."""
    if stats.energy_j is None or stats.elapsed_s <= 0:
        return None
    return stats.energy_j / stats.elapsed_s


def device_watts(stats: Stats, idle_w: float, nodes: int) -> tuple[float | None, float]:
    """Return the (busy, idle) watts of one of `nodes` nodes on a machine.

    `stats` are of a run in which that node alone computed, and the machine takes `idle_w` while
    none does. The first is None if the power was not measured, or the node computed too rarely.
    """
    share_w, mean_w = idle_w / nodes, machine_w(stats)
    busy = min(1.0, sum(stats.busy_s) / stats.elapsed_s) if stats.elapsed_s else 0.0
    if mean_w is None or busy < LEAST_BUSY:
        return None, share_w
    return share_w + max(0.0, mean_w - idle_w) / busy, share_w
