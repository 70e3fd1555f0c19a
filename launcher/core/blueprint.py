"""Describes a plan as it is deployed in one epoch: each node's part, and the launcher's own part.

If the network was copied (data parallelism), frames are dealt out to the copies. Each copy counts
its frames 0, 1, 2, …; only the host maps frame k of the run to frame j of a copy (`Dealing`). A
network that was not copied is a single copy.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from launcher.errors import BadInputError
from nodes.protocol.addresses import is_loopback
from nodes.protocol.messages import HOST, BlobInfo, ChannelSpec, Deployment, PeerSpec


@dataclass(frozen=True, slots=True)
class Dealing:
    """How frames are dealt out to copies of the network, in cycles of `len(pattern)` frames.

    `pattern` has the copy of each frame of a cycle (see `csdf.conversion.from_network`). `copy_of`
    maps the number of each of the host's channels to its copy (0 if it is missing), `own_name` the
    name of a copy's input or output to that in the original network (the same if it is missing).
    """

    pattern: tuple[int, ...] = (0,)
    copy_of: Mapping[int, int] = field(default_factory=dict)
    own_name: Mapping[str, str] = field(default_factory=dict)

    def copy(self, frame: int) -> int:
        """The copy that computes a frame of the run."""
        return self.pattern[frame % len(self.pattern)]

    def dealt(self, copy: int, frames: int) -> int:
        """How many of the run's first `frames` frames go to a copy."""
        cycles, rest = divmod(frames, len(self.pattern))
        return cycles * self.pattern.count(copy) + self.pattern[:rest].count(copy)

    def number(self, frame: int) -> int:
        """The number of a frame of the run in its copy."""
        return self.dealt(self.copy(frame), frame)

    def channel_copy(self, channel: int) -> int:
        """The copy to which one of the host's channels belongs."""
        return self.copy_of.get(channel, 0)

    def name(self, tensor: str) -> str:
        """The name of a copy's input or output in the original network."""
        return self.own_name.get(tensor, tensor)


WHOLE = Dealing()
"""All frames go to the only copy."""


@dataclass(frozen=True)
class Blueprint:
    """A plan divided by node, under the number of its epoch.

    `deployments` do not yet have the addresses of peers (see `addressed`). `from_host` and
    `to_host` are the channels that the launcher feeds and reads. `passed_through` names the network
    inputs that are also network outputs and never leave the host. `phase_s` has the predicted
    seconds of each node's phases; they assume that nodes are `slower` than the cost model by these
    factors (1.0 if one is missing). The nodes `with_room` have memory for what they load in
    addition to what they run when the plan is found. `blockable` are the numbers of the channels
    whose tensors subnets on both ends may compute in blocks of channels (`in_blocks`). `sharing`
    has the nodes of each machine with fewer cores than nodes, and its number of cores.
    """

    epoch: int
    deployments: Mapping[str, Deployment]
    from_host: tuple[ChannelSpec, ...]
    to_host: tuple[ChannelSpec, ...]
    passed_through: tuple[str, ...] = ()
    dealing: Dealing = WHOLE
    phase_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    slower: Mapping[str, float] = field(default_factory=dict)
    with_room: frozenset[str] = frozenset()
    blockable: frozenset[int] = frozenset()
    sharing: tuple[tuple[frozenset[str], int], ...] = ()

    def busiest_s(self, seconds: Mapping[str, float]) -> float:
        """Return the seconds per frame of the busiest node, or of all nodes that share its cores,
        if its nodes compute for these `seconds`."""
        shared = (
            sum(seconds.get(node, 0.0) for node in nodes) / cores for nodes, cores in self.sharing
        )
        return max([*seconds.values(), *shared])

    def fair_s(self, factors: Mapping[str, float]) -> float:
        """Return the seconds per frame if the work were spread evenly over nodes that take these
        multiples of their planned times."""
        speed = {node: 1 / factor for node, factor in factors.items()}
        for nodes, cores in self.sharing:
            own = nodes & speed.keys()
            for node in own:
                speed[node] *= min(1.0, cores / len(own))
        return sum(map(sum, self.phase_s.values())) / sum(speed.values())

    def rehearsed(self, seconds: Mapping[str, tuple[float, ...]]) -> Blueprint:
        """Return the blueprint with the times of phases that nodes have measured in a rehearsal.

        A rehearsal does not show how other programs slow a node down, so the factors in `slower`
        apply to its times too.
        """
        measured = {
            node: tuple(each * self.slower.get(node, 1.0) for each in seconds[node])
            for node, planned in self.phase_s.items()
            if len(seconds.get(node, ())) == len(planned) and all(seconds[node])
        }
        return replace(self, phase_s={**self.phase_s, **measured})

    def in_blocks(self, blocks: Mapping[str, int]) -> Blueprint:
        """Return the blueprint with tensors in blocks of channels where engines compute in them.

        `blocks` maps nodes to the channels of a block (1 if one is missing). All channels of a
        tensor change, or none, because its phase makes it in one order only.
        """
        plain: set[tuple[str, int | None, str]] = set()
        for deployment in self.deployments.values():
            for channel in deployment.channels:
                block = blocks.get(channel.source_node, 1)
                if (
                    channel.number not in self.blockable
                    or channel.encoding != "raw"
                    or block == 1
                    or blocks.get(channel.target_node, 1) != block
                    or channel.shape[1] % block
                ):
                    plain.add((channel.source_node, channel.source_phase, channel.tensor))
                if channel.kept_from:
                    (phase,) = channel.target_phases
                    plain.add((channel.target_node, phase, channel.kept_from))

        def ordered(channel: ChannelSpec) -> ChannelSpec:
            if (channel.source_node, channel.source_phase, channel.tensor) in plain:
                return channel
            return replace(channel, block=blocks[channel.source_node])

        deployments = {
            node: replace(deployment, channels=tuple(map(ordered, deployment.channels)))
            for node, deployment in self.deployments.items()
        }
        return replace(self, deployments=deployments)

    def network_of(self, channel: ChannelSpec) -> int:
        """The number of the network to which one of the host's channels belongs."""
        if channel.source_phase is not None:
            return self.deployments[channel.source_node].phases[channel.source_phase].network
        return self.deployments[channel.target_node].phases[channel.target_phases[0]].network

    def of_network(self, network: int) -> Blueprint:
        """Return the blueprint with the host's channels of one network only."""
        return replace(
            self,
            from_host=tuple(c for c in self.from_host if self.network_of(c) == network),
            to_host=tuple(c for c in self.to_host if self.network_of(c) == network),
        )

    @property
    def states(self) -> tuple[ChannelSpec, ...]:
        """The channels by which the host sends phases their initial state, once per epoch."""
        return tuple(channel for channel in self.from_host if channel.kept_from)

    @property
    def frames_held(self) -> int:
        """How many frames can have been sent whose results are not taken.

        On its way, a frame always occupies a place of each path from the host to the host. So no
        more frames are in flight than the channels of the path with the fewest places can hold, of
        each copy of the network.
        """
        pattern = self.dealing.pattern
        held = {copy: self._fewest_places(copy) for copy in dict.fromkeys(pattern)}
        cycles = min(places / pattern.count(copy) for copy, places in held.items())
        return math.ceil(cycles * len(pattern)) + len(pattern) - 1

    def _fewest_places(self, copy: int) -> int:
        """The places on the path through a copy of the network that has the fewest."""
        inner = (channel for each in self.deployments.values() for channel in each.channels)
        channels = {c.number: c for c in (*self.from_host, *inner, *self.to_host)}
        after: dict[tuple[str, int | None], list[ChannelSpec]] = {}
        for channel in channels.values():
            if not channel.kept_from:
                after.setdefault((channel.source_node, channel.source_phase), []).append(channel)
        first = [c for c in self.from_host if not c.kept_from]
        nearest = [
            (c.capacity_frames, c.number)
            for c in first
            if self.dealing.channel_copy(c.number) == copy
        ]
        heapq.heapify(nearest)
        seen: set[int] = set()
        while nearest:  # Dijkstra
            places, number = heapq.heappop(nearest)
            if number in seen:
                continue
            seen.add(number)
            channel = channels[number]
            if channel.target_node == HOST:
                return places
            for phase in channel.target_phases:
                for following in after.get((channel.target_node, phase), ()):
                    heapq.heappush(nearest, (places + following.capacity_frames, following.number))
        return 1

    def blobs(self, node: str) -> tuple[BlobInfo, ...]:
        """The blobs that a node needs, without repetition, in the order of its phases."""
        wanted = (
            blob
            for phase in self.deployments[node].phases
            for blob in (phase.graph, phase.weights)
            if blob is not None
        )
        return tuple(dict.fromkeys(wanted))

    def host_peers(self) -> tuple[str, ...]:
        """The nodes with which the host exchanges tensors, in the plan's order of nodes."""
        found = {channel.target_node for channel in self.from_host}
        found |= {channel.source_node for channel in self.to_host}
        return tuple(node for node in self.deployments if node in found)

    def addressed(self, data_addresses: Mapping[str, str]) -> Mapping[str, Deployment]:
        """Return the deployments with the addresses of the peers to which each node connects.

        `data_addresses` maps nodes to the addresses of their data ports. Raises `BadInputError` if
        a node on another machine would have to connect to a loopback address.
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
                    f"node {peer!r} has the loopback address {data_addresses[peer]}, which "
                    f"node {node!r} at {data_addresses[node]} cannot reach: "
                    f"give {peer!r} its address on the network"
                )
        return tuple(PeerSpec(peer, data_addresses[peer]) for peer in consumers)
