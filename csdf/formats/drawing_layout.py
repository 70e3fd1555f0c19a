"""Where a picture's actors stand, and the ways of channels that have others between their ends.

Actors stand in layers: each right of those that it reads from, apart from the channels that close
cycles; within a layer, near those that it is connected to. A channel that leads back, or past a
layer, keeps to a **lane** below all actors of the layers that it passes, so that it crosses none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from csdf.model.graph import Channel, Graph

BOX_WIDTH, BOX_HEIGHT, ROW, MARGIN = 120, 40, 110, 60
LANE = 18
"""Between lanes, if there are few of them."""

_ALL_LANES = 2000
"""What lanes take up at most, one beside the other."""

_SWEEPS = 6


@dataclass(frozen=True)
class Layout:
    """Actor → its upper left corner; channel → the height of its lane, if it has one; the size.

    `gap` is between layers.
    """

    corners: dict[str, tuple[int, int]]
    lanes: dict[str, int]
    gap: int
    width: int
    height: int


def layout(graph: Graph, gap: int) -> Layout:
    """Places everything, layers with a `gap` between them.

    Self-channels and those to the next layer need no lane.
    """
    layer = _layers(graph)
    corners = _corners(graph, layer, BOX_WIDTH + gap)
    lanes = _lanes(graph, layer, corners)
    lowest = max([*(y + BOX_HEIGHT for _, y in corners.values()), *lanes.values()], default=0)
    width = max((x for x, _ in corners.values()), default=0) + BOX_WIDTH + MARGIN
    return Layout(corners, lanes, gap, width, lowest + (LANE if lanes else MARGIN))


def _lanes(
    graph: Graph, layer: dict[str, int], corners: dict[str, tuple[int, int]]
) -> dict[str, int]:
    """The shortest first, each as high as others, and the actors above it, let it."""
    bottom = [0] * (max(layer.values(), default=-1) + 1)
    for name, (_, y) in corners.items():
        bottom[layer[name]] = max(bottom[layer[name]], y + BOX_HEIGHT)

    def passed(channel: Channel) -> range:
        low, high = sorted((layer[channel.source], layer[channel.target]))
        return range(low, high + 1)

    long = [
        channel
        for channel in graph.channels
        if channel.source != channel.target and layer[channel.target] != layer[channel.source] + 1
    ]
    step = max(2, min(LANE, _ALL_LANES // max(1, len(long))))
    lanes = {}
    for channel in sorted(long, key=lambda one: len(passed(one))):
        lanes[channel.name] = max(bottom[number] for number in passed(channel)) + step
        for number in passed(channel):
            bottom[number] = lanes[channel.name]
    return lanes


def _corners(graph: Graph, layer: dict[str, int], column: int) -> dict[str, tuple[int, int]]:
    """Upper left corners."""
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name, number in layer.items():
        rows[number].append(name)
    near: dict[str, list[str]] = {name: [] for name in layer}
    for channel in graph.channels:
        near[channel.source].append(channel.target)
        near[channel.target].append(channel.source)
    height = {name: i for names in rows for i, name in enumerate(names)}
    for sweep in range(_SWEEPS):
        for names in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {
                name: sum(height[other] for other in near[name]) / max(len(near[name]), 1)
                for name in names
            }
            names.sort(key=lambda name: wanted[name])
            height |= {name: i for i, name in enumerate(names)}
    most = max(map(len, rows), default=0)
    return {
        name: (
            MARGIN + x * column,
            MARGIN + y * ROW + (most - len(names)) * ROW // 2,
        )
        for x, names in enumerate(rows)
        for y, name in enumerate(names)
    }


def _layers(graph: Graph) -> dict[str, int]:
    """Actor → how many channels lead to it, those that close cycles left out."""
    follow: dict[str, list[str]] = {actor.name: [] for actor in graph.actors}
    for channel in graph.channels:
        if channel.source != channel.target:
            follow[channel.source].append(channel.target)
    # Channels with fewer initial tokens point forwards; so start where least is waited for.
    into = dict.fromkeys(follow, 0)
    for channel in graph.channels:
        if channel.source != channel.target and not channel.initial_tokens:
            into[channel.target] += 1
    order, closing = _depth_first(follow, sorted(follow, key=lambda name: into[name]))
    layer = dict.fromkeys(follow, 0)
    for name in reversed(order):
        for other in follow[name]:
            if (name, other) not in closing:
                layer[other] = max(layer[other], layer[name] + 1)
    return layer


def _depth_first(
    follow: dict[str, list[str]], starts: Iterable[str]
) -> tuple[list[str], set[tuple[str, str]]]:
    """All actors, each after those that follow it; and the pairs that close a cycle."""
    done: dict[str, bool] = {}
    order: list[str] = []
    closing: set[tuple[str, str]] = set()
    for start in starts:
        if start in done:
            continue
        done[start] = False
        stack = [(start, iter(follow[start]))]
        while stack:
            name, rest = stack[-1]
            other = next(rest, None)
            if other is None:
                done[name] = True
                order.append(name)
                stack.pop()
            elif other not in done:
                done[other] = False
                stack.append((other, iter(follow[other])))
            elif not done[other]:
                closing.add((name, other))
    return order, closing
