"""Recognise reverse channels that stand for capacities, and turn them into capacities.

SDF3 has no capacities. It expresses the capacity of a channel as a second channel in the opposite
direction with each other's rates, which starts with as many tokens as there are free places. But
feedback, like the credits or the state that a consumer sends back, looks the same, and to give it
more tokens is to change what the graph computes. So only the name says that a channel is a
capacity: that of its channel with `_space` (as `csdf.formats.sdf3` writes it) or `_bp` (for back
pressure) appended.
"""

from __future__ import annotations

import re
from dataclasses import replace

from csdf.model.graph import Channel, Graph

_NAME = re.compile(r"(.+)_(?:space|bp)_*", re.DOTALL)


def reverse_channels(graph: Graph) -> dict[str, Channel]:
    """Return the channel that each reverse channel bounds, by the reverse channel's name.

    A reverse channel has the other's name with `_space` or `_bp` appended, opposite ends, each
    other's rates, and no capacity.
    """
    bounds: dict[str, Channel] = {}
    for channel in graph.channels:
        name = _NAME.fullmatch(channel.name)
        bounded = None if name is None else graph.channel.get(name[1])
        if (
            bounded is not None
            and channel.capacity is None
            and channel.source != channel.target
            and (channel.source, channel.target) == (bounded.target, bounded.source)
            and (channel.production, channel.consumption)
            == (bounded.consumption, bounded.production)
        ):
            bounds[channel.name] = bounded
    return {name: bounded for name, bounded in bounds.items() if bounded.name not in bounds}


def fold_reverse_channels(graph: Graph) -> Graph:
    """Return the graph with capacities instead of the reverse channels that stand for them."""
    bounds = reverse_channels(graph)
    room: dict[str, int] = {}
    for name, bounded in bounds.items():
        places = graph.channel[name].initial_tokens + bounded.initial_tokens
        before = room.get(bounded.name, bounded.capacity)
        room[bounded.name] = places if before is None else min(before, places)
    channels = tuple(
        replace(channel, capacity=room.get(channel.name, channel.capacity))
        for channel in graph.channels
        if channel.name not in bounds
    )
    return replace(graph, channels=channels)
