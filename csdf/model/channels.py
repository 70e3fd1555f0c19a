"""Capacities written as channels, and back: SDF3 has no other words for them.

A channel of bounded capacity is then two, in opposite directions and with each other's rates; the
reverse one starts with as many tokens as there are free places.

Channels in series, of whose capacities only the sum counts.

Where an actor consumes and produces the same number of tokens in every firing, and all its firings
take the same time, a firing that waits for room through both its input and its output channel does
not distinguish room in the one from room in the other: what one gains, the other may lose. So a
cycle of waits through such channels persists for every way to divide the room between them.
"""

from __future__ import annotations

from dataclasses import replace

from csdf.model.graph import Channel, Graph


def mirrors(graph: Graph) -> dict[str, Channel]:
    """Reverse channels that stand for a capacity → the channels that they bound.

    The reverse one is recognised by a name that extends the other's, or by coming later and
    starting with tokens where the other has none.
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


def folded(graph: Graph) -> Graph:
    """The same graph with capacities instead of the reverse channels that stand for them."""
    bounds = {
        name: bounded
        for name, bounded in mirrors(graph).items()
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
