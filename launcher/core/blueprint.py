"""What is deployed: each node's share of a plan, and the launcher's own ends of the stream.

Which copy of a network computes which frame, as the host's source and sink count them.

Copies know nothing of each other: each gets frames 0, 1, 2, … of its own. The host alone knows that
frame k of the run is frame j of a copy. A network that was not copied is a single copy of itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from launcher.errors import BadInputError
from nodes.protocol.addresses import is_loopback
from nodes.protocol.messages import HOST, BlobInfo, ChannelSpec, Deployment, PeerSpec


@dataclass(frozen=True, slots=True)
class Dealing:
    """`pattern` has the copy of each frame of a cycle (see `csdf.conversion.from_network`).

    `copy_of` tells to which copy each of the host's channels belongs, by channel number (0 where it
    is missing); `own_name` what the network calls a copy's input or output (the same where it is
    missing).
    """

    pattern: tuple[int, ...] = (0,)
    copy_of: Mapping[int, int] = field(default_factory=dict)
    own_name: Mapping[str, str] = field(default_factory=dict)

    def copy(self, frame: int) -> int:
        """The copy that computes a frame of the run."""
        return self.pattern[frame % len(self.pattern)]

    def dealt(self, copy: int, frames: int) -> int:
        """How many of the first `frames` frames of the run a copy gets."""
        cycles, rest = divmod(frames, len(self.pattern))
        return cycles * self.pattern.count(copy) + self.pattern[:rest].count(copy)

    def number(self, frame: int) -> int:
        """The number that a frame of the run has in its copy."""
        return self.dealt(self.copy(frame), frame)

    def channel_copy(self, channel: int) -> int:
        """The copy that a channel belongs to."""
        return self.copy_of.get(channel, 0)

    def name(self, tensor: str) -> str:
        """What the network as it was read calls a tensor."""
        return self.own_name.get(tensor, tensor)


WHOLE = Dealing()
"""All frames go to the one network that there is."""


@dataclass(frozen=True)
class Blueprint:
    """A plan cut up by node. `deployments` still lack whom to dial: see `addressed`.

    `to_host` and `from_host` are the launcher's ends; `passed_through` names the network inputs
    that are network outputs too and never leave the host; `dealing` deals frames out to copies.
    `phase_s` are the predicted seconds of each node's phases, for nodes that are `slower` than the
    cost model takes them for by these factors (1 where none is given).
    """

    epoch: int
    deployments: Mapping[str, Deployment]
    from_host: tuple[ChannelSpec, ...]
    to_host: tuple[ChannelSpec, ...]
    passed_through: tuple[str, ...] = ()
    dealing: Dealing = WHOLE
    phase_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    slower: Mapping[str, float] = field(default_factory=dict)

    @property
    def states(self) -> tuple[ChannelSpec, ...]:
        """The channels that bring phases their state, once per epoch."""
        return tuple(channel for channel in self.from_host if channel.kept_from)

    def blobs(self, node: str) -> tuple[BlobInfo, ...]:
        """The blobs that a node needs, each once, in the order of its phases."""
        wanted = (
            blob
            for phase in self.deployments[node].phases
            for blob in (phase.graph, phase.weights)
            if blob is not None
        )
        return tuple(dict.fromkeys(wanted))

    def host_peers(self) -> tuple[str, ...]:
        """The nodes that the host feeds or is fed by, in the plan's order of nodes."""
        found = {channel.target_node for channel in self.from_host}
        found |= {channel.source_node for channel in self.to_host}
        return tuple(node for node in self.deployments if node in found)

    def addressed(self, data_addresses: Mapping[str, str]) -> Mapping[str, Deployment]:
        """The deployments with the addresses that each node dials (node → data address).

        Raises `BadInputError` where a node on another machine would have to dial a loopback
        address.
        """
        return {
            node: replace(deployment, dial=self._dial(node, data_addresses))
            for node, deployment in self.deployments.items()
        }

    def _dial(self, node: str, data_addresses: Mapping[str, str]) -> tuple[PeerSpec, ...]:
        consumers = dict.fromkeys(
            channel.target_node
            for channel in self.deployments[node].channels
            if channel.source_node == node and channel.target_node not in (node, HOST)
        )
        for peer in consumers:
            if is_loopback(data_addresses[peer]) and not is_loopback(data_addresses[node]):
                raise BadInputError(
                    f"node {peer!r} is known by the loopback address {data_addresses[peer]}, which "
                    f"node {node!r} at {data_addresses[node]} cannot reach: "
                    f"give {peer!r} its address on the network"
                )
        return tuple(PeerSpec(peer, data_addresses[peer]) for peer in consumers)
