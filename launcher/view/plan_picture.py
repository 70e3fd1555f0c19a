"""Draws a run as its plan: nodes with their phases and load, and the FIFOs between them.

The nodes stand below each other, about in the order in which a frame meets them. The FIFOs from one
node to the next are an arrow between them. All others pass the nodes between at the right if they
lead down, at the left if they lead up; each has a separate track where it would cross another.
FIFOs of the same two ends share an arrow, which shows how full the fullest one is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from launcher.view.elements import SVG, PageElement, element
from launcher.view.shown import ChannelRow, Gauge, Mark, NodeRow, ShownRun

LAUNCHER = "launcher"
"""The name of the launcher as an end of a channel (`launcher.view.shown`)."""

MOST_PHASES = 4
"""More phases of a node are only counted."""

_BOX, _GAP, _PILL, _TRACK, _MARGIN = 264, 44, 24, 56, 8
_LINE, _HEAD = 16, 26
_BAR = 34
_MOST_LETTERS = 24
_MOST_PHASE_LETTERS = 14


@dataclass(frozen=True, slots=True)
class _Place:
    """A box: where it stands in the order, its top and its height."""

    number: int
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class _Arrow:
    """The channels between two boxes."""

    source: int
    target: int
    channels: tuple[ChannelRow, ...]

    @property
    def is_straight(self) -> bool:
        return self.target == self.source + 1

    @property
    def leads_down(self) -> bool:
        return self.target > self.source

    @property
    def fullest(self) -> ChannelRow:
        return max(self.channels, key=lambda channel: channel.fill.share)


def plan_picture(run: ShownRun) -> PageElement:
    """Draw a run."""
    ordered = _ordered(run)
    places = _places(ordered)
    arrows = _arrows(run.channels, [node.name for node in ordered])
    left = _tracks([a for a in arrows if not a.is_straight and not a.leads_down])
    right = _tracks([a for a in arrows if not a.is_straight and a.leads_down])
    x = _MARGIN + _TRACK * (1 + max(left.values(), default=-1))
    width = x + _BOX + _TRACK * (1 + max(right.values(), default=-1)) + _MARGIN
    parts: list[PageElement] = []
    for number, text in ((0, "frames from the launcher"), (len(ordered) + 1, "results")):
        parts += _pill(x, places[number], text)
    for node, place in zip(ordered, places[1:], strict=False):
        parts.append(_node(x, place, node))
    for arrow in arrows:
        if arrow.is_straight:
            parts.append(_straight(x + _BOX / 2, places, arrow))
        elif arrow.leads_down:
            parts.append(_bent(x + _BOX, 1, right[arrow], places, arrow))
        else:
            parts.append(_bent(x, -1, left[arrow], places, arrow))
    return element(
        "svg",
        element("title", _summary(ordered, run)),
        *parts,
        xmlns=SVG,
        viewBox=f"0 0 {width} {places[-1].top + places[-1].height + _MARGIN:.0f}",
        class_="plan",
        role="img",
        width=width,
    )


def _summary(ordered: Sequence[NodeRow], run: ShownRun) -> str:
    names = ", ".join(node.name for node in ordered)
    full = sum(channel.is_full for channel in run.channels)
    limit = next((f"; {node.name} is the bottleneck" for node in ordered if node.is_bottleneck), "")
    return f"the plan: frames pass {names}{limit}; {full} of {len(run.channels)} FIFOs are full"


def _ordered(run: ShownRun) -> list[NodeRow]:
    """Return the nodes as a breadth-first search from the launcher meets them, then all others."""
    behind: dict[str, list[str]] = {}
    for channel in run.channels:
        behind.setdefault(channel.producer, []).append(channel.consumer)
    met: list[str] = []
    queue = deque([LAUNCHER])
    while queue:
        for name in behind.get(queue.popleft(), ()):
            if name not in (LAUNCHER, *met):
                met.append(name)
                queue.append(name)
    position = {name: number for number, name in enumerate(met)}
    return sorted(run.nodes, key=lambda node: position.get(node.name, len(met)))


def _places(ordered: Sequence[NodeRow]) -> list[_Place]:
    """Return the places of the launcher's frames, of the nodes, and of its results."""
    heights = [_PILL, *map(_height, ordered), _PILL]
    places, top = [], float(_MARGIN)
    for number, height in enumerate(heights):
        places.append(_Place(number, top, height))
        top += height + _GAP
    return places


def _height(node: NodeRow) -> float:
    phases = min(len(node.phases), MOST_PHASES) + (len(node.phases) > MOST_PHASES)
    gauges = (node.busy is not None) + (node.memory is not None)
    return _HEAD + _LINE * (gauges + phases) + (8 if gauges + phases else 2)


def _arrows(channels: Iterable[ChannelRow], names: Sequence[str]) -> list[_Arrow]:
    number = {name: index for index, name in enumerate(names, start=1)}
    between: dict[tuple[int, int], list[ChannelRow]] = {}
    for channel in channels:
        source = 0 if channel.producer == LAUNCHER else number.get(channel.producer)
        target = len(names) + 1 if channel.consumer == LAUNCHER else number.get(channel.consumer)
        if source is not None and target is not None and source != target:
            between.setdefault((source, target), []).append(channel)
    return [_Arrow(*ends, tuple(rows)) for ends, rows in between.items()]


def _tracks(arrows: Sequence[_Arrow]) -> dict[_Arrow, int]:
    """Give each arrow the innermost track that no other one uses along its way."""
    used: list[list[tuple[int, int]]] = []
    tracks: dict[_Arrow, int] = {}
    for arrow in sorted(arrows, key=lambda arrow: abs(arrow.target - arrow.source)):
        first, last = sorted((arrow.source, arrow.target))
        free = (
            track
            for track, spans in enumerate(used)
            if all(last <= begin or end <= first for begin, end in spans)
        )
        track = next(free, len(used))
        if track == len(used):
            used.append([])
        used[track].append((first, last))
        tracks[arrow] = track
    return tracks


def _pill(x: float, place: _Place, text: str) -> Iterator[PageElement]:
    yield element(
        "rect", x=x, y=place.top, width=_BOX, height=place.height, rx=place.height / 2, class_="box"
    )
    yield element("text", text, x=x + _BOX / 2, y=place.top + 16, class_="faint middle")


def _node(x: float, place: _Place, node: NodeRow) -> PageElement:
    classes = ["box", f"mark-{node.mark.value}", *(["limit"] if node.is_bottleneck else [])]
    remark = "bottleneck" if node.is_bottleneck else "" if node.state == "active" else node.state
    y = place.top
    parts = [
        element("rect", x=x, y=y, width=_BOX, height=place.height, rx=6, class_=" ".join(classes)),
        element("text", _short(node.name, _MOST_LETTERS), x=x + 10, y=y + 18, class_="strong"),
        element(
            "text",
            remark,
            x=x + _BOX - 10,
            y=y + 18,
            class_=f"end mark-{Mark.WARNING.value if node.is_bottleneck else node.mark.value}",
        ),
    ]
    y += _HEAD
    for label, gauge in (("busy", node.busy), ("memory", node.memory)):
        if gauge is not None:
            parts += [
                element("text", label, x=x + 10, y=y + 11, class_="faint"),
                *_bar(x + 62, y + 3, 48, gauge),
                element("text", gauge.text, x=x + 117, y=y + 11),
            ]
            y += _LINE
    for phase in node.phases[:MOST_PHASES]:
        measured = phase.time.partition(",")[0]
        parts.append(
            element(
                "text",
                f"{_short(phase.name, _MOST_PHASE_LETTERS)} · {phase.layers} · {measured}",
                element("title", f"{phase.name}: {phase.layers}, {phase.time}, {phase.firings}"),
                x=x + 10,
                y=y + 11,
            )
        )
        y += _LINE
    if (hidden := len(node.phases) - MOST_PHASES) > 0:
        parts.append(element("text", f"and {hidden} more", x=x + 10, y=y + 11, class_="faint"))
    return element("g", *parts)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _bar(x: float, y: float, width: float, gauge: Gauge, kind: str = "") -> Iterator[PageElement]:
    yield element("rect", x=x, y=y, width=width, height=8, rx=2, class_="bar")
    if gauge.share > 0:
        filled = max(1.0, gauge.share * width)
        classes = f"filled mark-{gauge.mark.value} {kind}".rstrip()
        yield element("rect", x=x, y=y, width=filled, height=8, rx=2, class_=classes)


def _fifo(x: float, y: float, arrow: _Arrow) -> Iterator[PageElement]:
    """Draw how full the fullest channel of an arrow is; `x` and `y` are the bar's left and top."""
    fullest = arrow.fullest
    yield from _bar(x, y, _BAR, fullest.fill, "full" if fullest.is_full else "")


def _about(arrow: _Arrow) -> PageElement:
    rows = (f"{c.name}: {c.fill.text} frames of {c.frame}" for c in arrow.channels)
    return element("title", "\n".join(rows))


def _straight(x: float, places: Sequence[_Place], arrow: _Arrow) -> PageElement:
    source, target = places[arrow.source], places[arrow.target]
    y0, y1 = source.top + source.height, target.top
    middle = (y0 + y1) / 2
    several = f", fullest of {len(arrow.channels)}" if len(arrow.channels) > 1 else ""
    text = f"{arrow.fullest.fill.text}{several}"
    return element(
        "g",
        _about(arrow),
        element("path", d=f"M{x:.1f},{y0:.1f} V{y1 - 7:.1f}", class_="arrow"),
        _head(x, y1, "down"),
        *_fifo(x + 10, middle - 5, arrow),
        element("text", text, x=x + 16 + _BAR, y=middle + 3),
    )


def _bent(x: float, side: int, track: int, places: Sequence[_Place], arrow: _Arrow) -> PageElement:
    """Draw an arrow past other nodes; `side` is 1 at the right, whose boxes end at `x`, else -1."""
    source, target = places[arrow.source], places[arrow.target]
    share = min(0.9, 0.55 + 0.12 * track)
    y0 = source.top + source.height * (share if arrow.leads_down else 1 - share)
    y1 = target.top + target.height * (1 - share if arrow.leads_down else share)
    way = x + side * (_TRACK * track + _TRACK / 2)
    middle = (y0 + y1) / 2
    return element(
        "g",
        _about(arrow),
        element(
            "path",
            d=f"M{x:.1f},{y0:.1f} H{way:.1f} V{y1:.1f} H{x + side * 7:.1f}",
            class_="arrow",
        ),
        _head(x, y1, "left" if side > 0 else "right"),
        element(
            "rect", x=way - _BAR / 2 - 2, y=middle - 12, width=_BAR + 4, height=28, class_="gap"
        ),
        *_fifo(way - _BAR / 2, middle - 10, arrow),
        element("text", arrow.fullest.fill.text, x=way, y=middle + 12, class_="middle"),
    )


_HEADS: Mapping[str, str] = {
    "down": "l-4,-8 h8 z",
    "left": "l8,-4 v8 z",
    "right": "l-8,-4 v8 z",
}


def _head(x: float, y: float, direction: str) -> PageElement:
    return element("path", d=f"M{x:.1f},{y:.1f} {_HEADS[direction]}", class_="head")
