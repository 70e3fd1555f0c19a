"""Says how the nodes of a service are, from its live clusters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from launcher.run.live_cluster import LiveCluster
from launcher.view.model import NodeState


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node of the service, for all models at once."""

    name: str
    state: NodeState
    reason: str = ""


def node_statuses(names: Iterable[str], lives: Iterable[LiveCluster]) -> list[NodeStatus]:
    """Return the state of each node: active if a model's plan has layers on it."""
    used = {phase.device for live in lives for phase in live.plan.phases}
    return [
        NodeStatus(name, NodeState.ACTIVE if name in used else NodeState.STANDING_BY)
        for name in names
    ]
