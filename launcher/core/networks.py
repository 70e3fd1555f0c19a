"""Streams the frames of several networks side by side, each as if it had the cluster to itself.

The networks of a cluster share nodes, but no channel and no phase. Each therefore has its own
stream (`launcher.core.stream`): a source, a sink, a count of frames and, if it keeps any, state.
Only epochs are common, because nodes deploy all networks at once: the next epoch begins, for each
network, with the first of its frames that has no result.

A run whose frames are one input for each network, and a run of one network, have a single stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from launcher.core.blueprint import Blueprint
from launcher.core.events import Halted, NetworkCounts, ResultsTaken
from launcher.core.stream import RunStream
from nodes.protocol.messages import ChannelSpec, Credit, TensorHeader

Payload = TypeVar("Payload")


class NetworkStreams(Generic[Payload]):
    """The streams of all networks of a run, by the networks' numbers."""

    def __init__(self, blueprint: Blueprint, streams: Sequence[RunStream[Payload]]) -> None:
        """`blueprint` is the first epoch's; each stream has its network's share of it."""
        self._streams = tuple(streams)
        self._note(blueprint)

    def _note(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self._network_of = {
            channel.number: blueprint.network_of(channel)
            for channel in (*blueprint.from_host, *blueprint.to_host)
            if len(self._streams) > 1
        }

    def __iter__(self) -> Iterator[RunStream[Payload]]:
        return iter(self._streams)

    def __getitem__(self, network: int) -> RunStream[Payload]:
        return self._streams[network]

    @property
    def progress(self) -> ResultsTaken:
        """The progress of all networks, for the supervisor."""
        return ResultsTaken(
            tuple(NetworkCounts(s.taken, s.frames, s.offered, s.first) for s in self._streams)
        )

    # ------------------------------------------------------------ epochs

    def begin(self, blueprint: Blueprint) -> None:
        """Begin an epoch on all networks; raises as `RunStream.begin`."""
        self._note(blueprint)
        for network, stream in enumerate(self._streams):
            stream.begin(blueprint if len(self._streams) == 1 else blueprint.of_network(network))

    def halt(self) -> Halted:
        """Abandon the epoch on all networks."""
        replayed = sum(stream.halt()[1] for stream in self._streams)
        return Halted(self.progress.networks, replayed)

    # ------------------------------------------------------------ nodes

    def channels(self, node: str) -> list[ChannelSpec]:
        """The host's channels from and to `node`."""
        both = (*self.blueprint.from_host, *self.blueprint.to_host)
        return [channel for channel in both if node in (channel.source_node, channel.target_node)]

    def attach(self, node: str) -> list[Credit]:
        """The initial credits for the channels from `node`."""
        return [credit for stream in self._streams for credit in stream.sink.attach(node)]

    def credit(self, grant: Credit) -> bool:
        """See `RunStream.credit`."""
        return self._of(grant.channel).credit(grant)

    def tensor(self, node: str, header: TensorHeader, payload: Payload) -> bool:
        """See `RunStream.tensor`."""
        return self._of(header.channel).tensor(node, header, payload)

    def _of(self, channel: int) -> RunStream[Payload]:
        """The stream of a channel's network; any stream refuses an unknown channel."""
        return self._streams[self._network_of.get(channel, 0)]
