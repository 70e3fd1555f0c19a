"""Says which nodes are parts of one machine.

The CPU and the GPU of a board are two nodes with an agent each. They share the board's memory and
its link, and a tensor between them does not pass the link. How many cores the board has is not
known before its agents are asked, so each of its nodes is taken to have a processor of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from launcher.config.cluster import NodeConfig
from launcher.run.this_machine import is_here
from nodes.protocol.addresses import host_of


def machine_of(node: NodeConfig) -> str:
    """Return the name of the machine that a node is a part of; empty for this one."""
    if node.host is not None:
        return node.host
    return "" if is_here(node.address) else host_of(str(node.address)) or ""


def shared_machines(nodes: Iterable[NodeConfig]) -> dict[str, int]:
    """Return how many nodes each machine has that has several, without this one."""
    counted = Counter(map(machine_of, nodes))
    return {name: count for name, count in counted.items() if count > 1 and name}
