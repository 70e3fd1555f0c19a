"""Which channels each phase of a node reads and writes, found in one pass over the channels.

One pass, because a launcher may name thousands of phases and of channels in a single message:
looking through all channels for each phase would keep an agent busy for minutes.
"""

from __future__ import annotations

from nodes.protocol.messages import ChannelSpec, Deployment

Reader = tuple[ChannelSpec, int]
"""A channel and the number of a phase among its readers."""


class Wiring:
    """`reads` and `writes` have one entry per phase, each in the order of the channels; so has
    `begins`: the channels that bring a phase its state before its first frame.

    The phases that channels name must be there (`nodes.core.deployment.check`).
    """

    def __init__(self, deployment: Deployment) -> None:
        self.reads: list[list[Reader]] = [[] for _ in deployment.phases]
        self.begins: list[list[Reader]] = [[] for _ in deployment.phases]
        self.writes: list[list[ChannelSpec]] = [[] for _ in deployment.phases]
        for channel in deployment.channels:
            if channel.target_node == deployment.node:
                for number, phase in enumerate(channel.target_phases):
                    found = self.begins if channel.kept_from else self.reads
                    found[phase].append((channel, number))
            if channel.source_node == deployment.node and channel.source_phase is not None:
                self.writes[channel.source_phase].append(channel)
