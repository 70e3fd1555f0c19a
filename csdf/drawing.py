"""Pictures of a graph: Graphviz's DOT, and an SVG that needs no Graphviz.

Actors carry their execution times, channels their rates (production → consumption), initial tokens
(•) and capacities (≤); runs of equal numbers are written like `18*32`. Reverse channels that stand
for capacities are drawn as the capacities that they are. What is on the critical cycle is red.

The SVG places actors in layers: each right of those that it reads from, apart from the channels
that close cycles; within a layer, near those that it is connected to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from csdf.errors import TooLargeError
from csdf.graph import Actor, Channel, Graph
from csdf.reverse_channels import folded, mirrors
from csdf.throughput import Step
from csdf.xml_text import escaped

MOST_ACTORS = 2000
"""Actors that an SVG can show."""

_RED, _GREY = "#c0392b", "#444444"
_BOX_WIDTH, _BOX_HEIGHT, _COLUMN, _ROW, _MARGIN = 120, 40, 230, 110, 60
_SWEEPS = 6


@dataclass(frozen=True)
class Marked:
    """What to draw, and which of it is critical."""

    graph: Graph
    actors: frozenset[str]
    channels: frozenset[str]


def marked(graph: Graph, critical: Sequence[Step] = ()) -> Marked:
    """`graph` with its reverse channels folded, and the cycle `critical` marked."""
    drawn = folded(graph)
    bounds = mirrors(graph)
    channels = {
        bounds[step.channel].name if step.channel in bounds else step.channel
        for step in critical
        if step.channel is not None
    }
    # A reverse channel that has a capacity itself is drawn as it is.
    channels |= {step.channel for step in critical if step.channel in drawn.channel}
    actors = frozenset(step.actor for step in critical)
    return Marked(drawn, actors, frozenset(name for name in channels if name in drawn.channel))


def as_dot(picture: Marked) -> str:
    """A digraph for Graphviz."""
    lines = [f"digraph {_dot(picture.graph.name or 'graph')} {{", "  rankdir=LR;"]
    lines.append('  node [shape=box, fontname="sans-serif"];')
    lines.append('  edge [fontname="sans-serif", fontsize=10];')
    for actor in picture.graph.actors:
        red = f", color={_dot(_RED)}, penwidth=2" if actor.name in picture.actors else ""
        label = f"{actor.name}\n{_about_actor(actor)}"
        lines.append(f"  {_dot(actor.name)} [label={_dot(label)}{red}];")
    for channel in picture.graph.channels:
        red = f", color={_dot(_RED)}, penwidth=2" if channel.name in picture.channels else ""
        label = f"{channel.name}\n{_about_channel(channel)}"
        ends = f"{_dot(channel.source)} -> {_dot(channel.target)}"
        lines.append(f"  {ends} [label={_dot(label)}{red}];")
    return "\n".join([*lines, "}", ""])


def as_svg(picture: Marked) -> str:
    """An SVG document. Raises `TooLargeError` for more than `MOST_ACTORS` actors."""
    graph = picture.graph
    if len(graph.actors) > MOST_ACTORS:
        raise TooLargeError(
            f"{len(graph.actors)} actors do not fit a picture (at most {MOST_ACTORS} do); "
            "write DOT and let Graphviz's sfdp draw it"
        )
    places = _places(graph)
    width = max((x for x, _ in places.values()), default=0) + _BOX_WIDTH + _MARGIN
    height = max((y for _, y in places.values()), default=0) + _BOX_HEIGHT + _MARGIN
    body = []
    seen: dict[tuple[str, str], int] = {}
    for channel in graph.channels:
        ends = (channel.source, channel.target)
        seen[ends] = seen.get(ends, -1) + 1
        body.append(_channel(channel, places, seen[ends], channel.name in picture.channels))
    body += [
        _actor(actor, *places[actor.name], actor.name in picture.actors) for actor in graph.actors
    ]
    size = f'width="{width}" height="{height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
    )
    arrows = [
        f'<marker id="{name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        for name, colour in (("grey", _GREY), ("red", _RED))
    ]
    return "\n".join([head, "<defs>", *arrows, "</defs>", *body, "</svg>", ""])


def _places(graph: Graph) -> dict[str, tuple[int, int]]:
    """Upper left corners."""
    layer = _layers(graph)
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
            _MARGIN + x * _COLUMN,
            _MARGIN + y * _ROW + (most - len(names)) * _ROW // 2,
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


def _actor(actor: Actor, x: int, y: int, critical: bool) -> str:
    colour, stroke = (_RED, 2) if critical else (_GREY, 1)
    middle = x + _BOX_WIDTH // 2
    box = (
        f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="4" fill="white" '
        f'stroke="{colour}" stroke-width="{stroke}"/>'
    )
    name = f'<text x="{middle}" y="{y + 16}" text-anchor="middle">{_text(actor.name, 18)}</text>'
    about = f'<text x="{middle}" y="{y + 32}" text-anchor="middle" fill="#777">'
    return f"{box}{name}{about}{_text(_about_actor(actor), 20)}</text>"


def _channel(
    channel: Channel, places: dict[str, tuple[int, int]], number: int, critical: bool
) -> str:
    """A curve from right to left end; the `number`-th between the same actors bends further."""
    (x1, y1), (x2, y2) = places[channel.source], places[channel.target]
    bend = 26 * number
    if channel.source == channel.target:
        x, y, up = x1 + _BOX_WIDTH // 2, y1, 34 + bend
        path = f"M{x - 20},{y} C{x - 30},{y - up} {x + 30},{y - up} {x + 20},{y}"
        label = (x, y - 3 * up // 4 - 4)
    elif x2 > x1:
        start, end = (x1 + _BOX_WIDTH, y1 + _BOX_HEIGHT // 2), (x2, y2 + _BOX_HEIGHT // 2)
        far = (end[0] - start[0]) // 2
        path = (
            f"M{start[0]},{start[1]} C{start[0] + far},{start[1] + bend} "
            f"{end[0] - far},{end[1] + bend} {end[0]},{end[1]}"
        )
        label = ((start[0] + end[0]) // 2, (start[1] + end[1]) // 2 + 3 * bend // 4 - 5)
    else:
        start = (x1 + _BOX_WIDTH // 2, y1 + _BOX_HEIGHT)
        end = (x2 + _BOX_WIDTH // 2, y2 + _BOX_HEIGHT)
        low = max(start[1], end[1]) + 34 + bend
        path = f"M{start[0]},{start[1]} C{start[0]},{low} {end[0]},{low} {end[0]},{end[1]}"
        label = ((start[0] + end[0]) // 2, (start[1] + end[1] + 6 * low) // 8 - 4)
    colour, arrow, stroke = (_RED, "red", 2) if critical else (_GREY, "grey", 1)
    title = f"{channel.name}: {_about_channel(channel)}"
    return (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{stroke}" '
        f'marker-end="url(#{arrow})"><title>{_text(title)}</title></path>'
        f'<text x="{label[0]}" y="{label[1]}" text-anchor="middle" font-size="9" '
        f'fill="{colour}">{_text(title, 34)}</text>'
    )


def _about_actor(actor: Actor) -> str:
    bound = "" if actor.concurrency is None else f" ×{actor.concurrency}"
    return f"{_runs(actor.execution_times)}{bound}"


def _about_channel(channel: Channel) -> str:
    about = f"{_runs(channel.production)} → {_runs(channel.consumption)}"
    if channel.initial_tokens:
        about += f" •{channel.initial_tokens}"
    return about if channel.capacity is None else f"{about} ≤{channel.capacity}"


def _runs(values: Iterable[int | Fraction]) -> str:
    """Like SDF3's lists."""
    runs = [(str(value), len(list(run))) for value, run in itertools.groupby(values)]
    return ",".join(f"{count}*{value}" if count > 1 else value for value, count in runs)


def _dot(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + "".join(c if c.isprintable() else "?" for c in escaped) + '"'


def _text(text: str, most: int | None = None) -> str:
    """Escaped, shortened, and without the control characters that XML cannot hold."""
    if most is not None and len(text) > most:
        text = text[: most - 1] + "…"
    return escaped("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))
