"""Draw a graph as an SVG, with its critical cycle in red.

Actors carry their execution times, channels their rates (production → consumption), initial tokens
(•) and capacities (≤); runs of equal numbers are written like `18*32`. Reverse channels that stand
for capacities are drawn as capacities.

Actors are placed in layers: each to the right of those from which channels lead to it, apart from
channels that close cycles; within a layer, near the actors to which it is connected. A channel that
leads back, or past a layer, has a **lane** below all actors of the layers that it passes, so that
it crosses none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import TooLargeError
from csdf.formats.safe_xml import escaped
from csdf.model.channels import fold_reverse_channels, reverse_channels
from csdf.model.graph import Actor, Channel, Graph
from csdf.timing.throughput import CycleStep

BOX_WIDTH, BOX_HEIGHT, ROW, MARGIN = 120, 40, 110, 60
LANE = 18
"""Pixels between lanes, if there are few of them."""

_ALL_LANES = 2000
"""Largest height in pixels of all lanes together."""

_SWEEPS = 6

MOST_ACTORS = 2000
"""Largest number of actors that are drawn."""

_RED, _GREY = "#c0392b", "#444444"

_LABEL = 'text-anchor="middle" font-size="9" stroke="white" stroke-width="3" paint-order="stroke"'

_GAP, _GLYPH, _MOST_GLYPHS = 110, 5, 34


@dataclass(frozen=True)
class Layout:
    """Positions in pixels: the upper left corner of each actor, and the height of each lane.

    `lanes` are by channel; `gap` is the space between layers.
    """

    corners: dict[str, tuple[int, int]]
    lanes: dict[str, int]
    gap: int
    width: int
    height: int


def layout(graph: Graph, gap: int) -> Layout:
    """Place all actors and lanes, with `gap` pixels between layers.

    Self-channels and channels to the next layer need no lane.
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
    """Return the lanes, the shortest first, each as high as actors and other lanes allow."""
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
    """Return the upper left corner of each actor."""
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
    """Return the layer of each actor: the longest path to it without channels that close cycles."""
    follow: dict[str, list[str]] = {actor.name: [] for actor in graph.actors}
    for channel in graph.channels:
        if channel.source != channel.target:
            follow[channel.source].append(channel.target)
    # Start at actors that wait for the fewest channels without initial tokens.
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
    """Return all actors in postorder, and the pairs of actors that close a cycle."""
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


@dataclass(frozen=True)
class Marked:
    """A graph to draw, and the names of its critical actors and channels."""

    graph: Graph
    actors: frozenset[str]
    channels: frozenset[str]


def marked(graph: Graph, critical: Sequence[CycleStep] = ()) -> Marked:
    """Return `graph` with its reverse channels folded, and the cycle `critical` marked."""
    drawn = fold_reverse_channels(graph)
    bounds = reverse_channels(graph)
    channels = {
        bounds[step.channel].name if step.channel in bounds else step.channel
        for step in critical
        if step.channel is not None
    }
    actors = frozenset(step.actor for step in critical)
    return Marked(drawn, actors, frozenset(name for name in channels if name in drawn.channel))


def as_svg(picture: Marked) -> str:
    """Return an SVG document. Raises `TooLargeError` for more than `MOST_ACTORS` actors.

    >>> from csdf import Actor, Graph
    >>> graph = Graph("one", (Actor("camera", (Fraction(2),)),), ())
    >>> "camera" in as_svg(marked(graph))
    True
    """
    graph = picture.graph
    if len(graph.actors) > MOST_ACTORS:
        raise TooLargeError(
            f"{len(graph.actors)} actors do not fit a picture (at most {MOST_ACTORS} do); "
            "`csdf.to_networkx` converts the graph for tools that draw larger ones"
        )
    labelled = (_title(channel) for channel in graph.channels if channel.source != channel.target)
    longest = max(map(len, labelled), default=0)
    where = layout(graph, max(_GAP, _GLYPH * min(longest, _MOST_GLYPHS) + 20))
    lines, labels = [], []
    seen: dict[tuple[str, str], int] = {}
    for channel in graph.channels:
        ends = (channel.source, channel.target)
        seen[ends] = seen.get(ends, -1) + 1
        line, label = _channel(channel, where, seen[ends], channel.name in picture.channels)
        lines.append(line)
        labels.append(label)
    boxes = [
        _actor(actor, *where.corners[actor.name], actor.name in picture.actors)
        for actor in graph.actors
    ]
    size = f'width="{where.width}" height="{where.height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    )
    arrows = [
        f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        for name, colour in (("grey", _GREY), ("red", _RED))
    ]
    return "\n".join([head, "<defs>", *arrows, "</defs>", *lines, *boxes, *labels, "</svg>", ""])


def _actor(actor: Actor, x: int, y: int, critical: bool) -> str:
    colour, stroke = (_RED, 2) if critical else (_GREY, 1)
    middle = x + BOX_WIDTH // 2
    box = (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4" fill="white" '
        f'stroke="{colour}" stroke-width="{stroke}"/>'
    )
    name = f'<text x="{middle}" y="{y + 16}" text-anchor="middle">{_text(actor.name, 18)}</text>'
    about = f'<text x="{middle}" y="{y + 32}" text-anchor="middle" fill="#777">'
    return f"{box}{name}{about}{_text(_about_actor(actor), 20)}</text>"


def _channel(channel: Channel, where: Layout, number: int, critical: bool) -> tuple[str, str]:
    """Return the line and the label; the `number`-th between the same actors bends further."""
    if channel.source == channel.target:
        path, label = _own(where.corners[channel.source], number)
    elif channel.name in where.lanes:
        path, label = _in_lane(channel, where)
    else:
        path, label = _across(channel, where, 26 * number)
    colour, arrow, stroke = (_RED, "red", 2) if critical else (_GREY, "grey", 1)
    title = _title(channel)
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{stroke}" '
        f'marker-end="url(#{arrow})"><title>{_text(title)}</title></path>',
        f'<text x="{label[0]}" y="{label[1]}" {_LABEL} fill="{colour}">'
        f"{_text(title, _MOST_GLYPHS)}</text>",
    )


def _own(corner: tuple[int, int], number: int) -> tuple[str, tuple[int, int]]:
    """Return the path of a loop above the actor, and the position of its label."""
    x, y, up = corner[0] + BOX_WIDTH // 2, corner[1], 34 + 26 * number
    path = f"M{x - 20},{y} C{x - 30},{y - up} {x + 30},{y - up} {x + 20},{y}"
    return path, (x, y - 3 * up // 4 - 4)


def _across(channel: Channel, where: Layout, bend: int) -> tuple[str, tuple[int, int]]:
    """Return the path to the next layer, and the position of its label."""
    (x1, y1), (x2, y2) = _ends(channel, where)
    far = (x2 - x1) // 2
    path = f"M{x1},{y1} C{x1 + far},{y1 + bend} {x2 - far},{y2 + bend} {x2},{y2}"
    return path, ((x1 + x2) // 2, (y1 + y2) // 2 + 3 * bend // 4 - 5)


def _in_lane(channel: Channel, where: Layout) -> tuple[str, tuple[int, int]]:
    """Return the path along the channel's lane, and the position of its label."""
    (x1, y1), (x2, y2), lane = *_ends(channel, where), where.lanes[channel.name]
    near = where.gap // 2
    far = where.gap if x1 < x2 else 0
    path = (
        f"M{x1},{y1} C{x1 + near},{y1} {x1 + near},{lane} {x1 + far},{lane} "
        f"L{x2 - far},{lane} C{x2 - near},{lane} {x2 - near},{y2} {x2},{y2}"
    )
    return path, ((x1 + x2) // 2, lane - 3)


def _ends(channel: Channel, where: Layout) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the middle of the source's right side and of the target's left side."""
    (x1, y1), (x2, y2) = where.corners[channel.source], where.corners[channel.target]
    return (x1 + BOX_WIDTH, y1 + BOX_HEIGHT // 2), (x2, y2 + BOX_HEIGHT // 2)


def _about_actor(actor: Actor) -> str:
    bound = "" if actor.concurrency is None else f" ×{actor.concurrency}"
    return f"{_runs(actor.execution_times)}{bound}"


def _title(channel: Channel) -> str:
    return f"{channel.name}: {_about_channel(channel)}"


def _about_channel(channel: Channel) -> str:
    about = f"{_runs(channel.production)} → {_runs(channel.consumption)}"
    if channel.initial_tokens:
        about += f" •{channel.initial_tokens}"
    return about if channel.capacity is None else f"{about} ≤{channel.capacity}"


def _runs(values: Iterable[int | Fraction]) -> str:
    """Return values in the notation of SDF3's lists."""
    runs = [(str(value), len(list(run))) for value, run in itertools.groupby(values)]
    return ",".join(f"{count}*{value}" if count > 1 else value for value, count in runs)


def _text(text: str, most: int | None = None) -> str:
    """Escape text, and shorten it to `most` characters."""
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    return escaped(text)
