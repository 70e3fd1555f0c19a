"""Derives the states of a service's nodes from its runs' views, and says how to restart one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from launcher.config.load import Cluster
from launcher.plan.machines import THIS_MACHINE, machine_of
from launcher.upgrade.boards import ssh_target
from launcher.view.model import NodeState, NodeView, RunView

_WORST_FIRST = (NodeState.LOST, NodeState.ABSENT, NodeState.ACTIVE, NodeState.STANDING_BY)


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node, for all runs at once: lost or absent if it is that for one of them."""

    name: str
    state: NodeState
    reason: str = ""


def node_statuses(names: Iterable[str], views: Sequence[RunView]) -> list[NodeStatus]:
    """Return the state of each node; one that no run knows stands by."""
    found: dict[str, NodeView] = {}
    for view in views:
        for node in view.nodes:
            other = found.get(node.name)
            if other is None or _rank(node.state) < _rank(other.state):
                found[node.name] = node
    return [
        NodeStatus(name, found[name].state, found[name].reason)
        if name in found
        else NodeStatus(name, NodeState.STANDING_BY)
        for name in names
    ]


def restart_there(cluster: Cluster, name: str) -> str:
    """Return the command that restarts the agent of a node that has an address."""
    node = next(node for node in cluster.config.nodes if node.name == name)
    restart = ("sudo", "systemctl", "restart", "node-agent")
    target = ssh_target(node)
    is_here = node.ssh is None and machine_of(node) == THIS_MACHINE
    command = shlex.join(restart) if is_here else target.command(*restart)
    return (
        f"node {name!r} has an agent of its own at {node.address}, which is started there: "
        f"`{command}` restarts it; the service goes on with the other nodes, and takes it again"
    )


def _rank(state: NodeState) -> int:
    return _WORST_FIRST.index(state)
