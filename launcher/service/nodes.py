"""Derives the states of a service's nodes from its runs' views, and says how to restart one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from launcher.config.load import Cluster
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.upgrade.boards import ssh_target
from launcher.view.model import NodeState, NodeView, RunView

_WORST_FIRST = (NodeState.LOST, NodeState.ABSENT, NodeState.ACTIVE, NodeState.STANDING_BY)


def node_statuses(names: Iterable[str], views: Sequence[RunView]) -> list[NodeView]:
    """Return each node as the run sees it for which its state is worst; one that no run knows
    stands by."""
    found = {name: NodeView(name, NodeState.STANDING_BY) for name in names}
    for view in views:
        for node in view.nodes:
            if node.name in found and _rank(node.state) < _rank(found[node.name].state):
                found[node.name] = node
    return list(found.values())


def restart_there(cluster: Cluster, name: str) -> str:
    """Return the command that restarts the agent of a node that has an address."""
    node = next(node for node in cluster.config.nodes if node.name == name)
    restart = ("sudo", "systemctl", "restart", "node-agent")
    target = ssh_target(node)
    is_here = node.ssh is None and machine_of(node) == THIS_MACHINE
    command = shlex.join(restart) if is_here else target.command(*restart)
    return (
        f"node {name!r} has its own agent at {node.address}: restart it on its machine with "
        f"`{command}`; the service continues with the other nodes, and then uses this one again"
    )


def _rank(state: NodeState) -> int:
    return _WORST_FIRST.index(state)
