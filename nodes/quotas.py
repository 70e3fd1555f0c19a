"""Check a deployment against the agent's quotas, and raise the limit of file descriptors.

ZeroMQ and the gate of each port enforce the limits of tensors and connections,
`nodes.cache.blobs` that of the cache.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

from nodes.core.deployment import described, tensor_bytes
from nodes.net.gate import UNKNOWN_PER_KNOWN
from nodes.net.listener import MAX_CONNECTIONS
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import Deployment

DEFAULT_CACHE_BYTES = 4 << 30
DEFAULT_TENSOR_BYTES = 256 << 20

PORTS = 2
OTHER_DESCRIPTORS = 256
"""File descriptors other than the connections of the ports: links, files, and those of ZeroMQ."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """The limits of the cache in bytes, of one received tensor in bytes, and of each port."""

    cache_bytes: int = DEFAULT_CACHE_BYTES
    tensor_bytes: int = DEFAULT_TENSOR_BYTES
    connections: int = MAX_CONNECTIONS

    def excess(self, deployment: Deployment) -> str | None:
        """Return how a deployment exceeds the quotas, as a sentence; None if it does not."""
        for channel in deployment.channels:
            size = tensor_bytes(channel)
            if channel.source_node != channel.target_node and size > self.tensor_bytes:
                return (
                    f"{described(channel)} has frames of {size} bytes; node {deployment.node!r} "
                    f"takes at most {self.tensor_bytes} (node-agent --tensor-bytes)"
                )
        weights = {
            blob.digest: blob.size_bytes
            for phase in deployment.phases
            for blob in (phase.graph, phase.weights)
            if blob is not None
        }
        if sum(weights.values()) > self.cache_bytes:
            return (
                f"its subnets have {sum(weights.values())} bytes; the cache of node "
                f"{deployment.node!r} takes at most {self.cache_bytes} (node-agent --cache-bytes)"
            )
        return None


def descriptors_needed(connections: int) -> int:
    """Return the file descriptors that an agent with this limit of connections may need."""
    return PORTS * connections * (1 + UNKNOWN_PER_KNOWN) + OTHER_DESCRIPTORS


def allow_descriptors(connections: int) -> None:
    """Raise this process's limit of file descriptors to what its ports may need.

    Without descriptors, ZeroMQ stops accepting connections, and files cannot be opened. Raises
    `NodeError` if the system does not allow that.
    """
    needed = descriptors_needed(connections)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        fit = (hard - OTHER_DESCRIPTORS) // (PORTS * (1 + UNKNOWN_PER_KNOWN))
        raise NodeError(
            f"--connections {connections} may need {needed} file descriptors, and this system "
            f"allows {hard} (ulimit -Hn): "
            + (f"use --connections {fit} at most, or " if fit > 0 else "")
            + "raise that limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
