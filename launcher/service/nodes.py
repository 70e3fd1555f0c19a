"""Says how the nodes of a service are, from what its runs look like."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def _rank(state: NodeState) -> int:
    return _WORST_FIRST.index(state)
