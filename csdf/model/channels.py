"""Recognise reverse channels that stand for capacities, and turn them into capacities.

SDF3 has no capacities. It expresses the capacity of a channel as a second channel in the opposite
direction with each other's rates, which starts with as many tokens as there are free places.
"""

from __future__ import annotations

from dataclasses import replace

from csdf.model.graph import Channel, Graph


def reverse_channels(graph: Graph) -> dict[str, Channel]:
    """Return the channel that each reverse channel bounds, by the reverse channel's name.

    Of two channels with opposite ends and each other's rates, the reverse one is that whose name
    extends the other's, or that comes later and starts with tokens where the other has none.
    """
    by_shape: dict[tuple[object, ...], list[Channel]] = {}
    bounds: dict[str, Channel] = {}
    taken: set[str] = set()
    for later in graph.channels:
        if later.source == later.target:
            continue
        shape = (later.target, later.source, later.consumption, later.production)
        for earlier in by_shape.get(shape, []):
            if earlier.name in taken:
                continue
            extends = later.name.startswith(earlier.name)
            if extends or (later.initial_tokens and not earlier.initial_tokens):
                bounds[later.name] = earlier
            elif earlier.name.startswith(later.name):
                bounds[earlier.name] = later
            else:
                continue
            taken |= {earlier.name, later.name}
            break
        own = (later.source, later.target, later.production, later.consumption)
        by_shape.setdefault(own, []).append(later)
    return bounds


def fold_reverse_channels(graph: Graph) -> Graph:
    """Return the graph with capacities instead of the reverse channels that stand for them."""
    bounds = {
        name: bounded
        for name, bounded in reverse_channels(graph).items()
        if graph.channel[name].capacity is None
    }
    room: dict[str, int] = {}
    for name, bounded in bounds.items():
        places = graph.channel[name].initial_tokens + bounded.initial_tokens
        room[bounded.name] = places if bounded.capacity is None else min(bounded.capacity, places)
    channels = tuple(
        replace(channel, capacity=room.get(channel.name, channel.capacity))
        for channel in graph.channels
        if channel.name not in bounds
    )
    return replace(graph, channels=channels)
