"""Lays a run out in lines of a terminal.

The first lines stay, all others scroll between them and the last one. Nothing depends on colours:
what is marked also has a sign. Where a terminal has no UTF-8, everything is ASCII.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from launcher.view.shown import ChannelRow, Gauge, Mark, NodeRow, ShownRun
from nodes.protocol.fields import printable

NAME, STATE, BAR, SHARE, WAITS, MEMORY = 16, 12, 10, 5, 6, 22
"""Columns of the table of nodes."""

PLAIN_WIDTH = 110
"""The width where the output is not a terminal."""

SIGNS = {Mark.NONE: "  ", Mark.FINE: "  ", Mark.WARNING: "! ", Mark.ERROR: "!!"}
COLOURS = {Mark.NONE: "", Mark.FINE: "green", Mark.WARNING: "yellow", Mark.ERROR: "bold red"}

_ASCII = str.maketrans({"→": "->", "█": "#", "░": ".", "µ": "u", "…": "~", "·": "-"})


@dataclass(frozen=True, slots=True)
class Style:
    """The capabilities of a terminal."""

    is_ascii: bool = False


@dataclass(frozen=True, slots=True)
class Screen:
    """The lines of a screen; `first_line` is the first visible one of the lines that scroll."""

    rows: tuple[Text, ...]
    first_line: int
    page_lines: int


def screen(
    run: ShownRun | None,
    place: tuple[int, int],
    url: str,
    problem: str,
    width: int,
    height: int,
    first_line: int,
    style: Style,
    *,
    waits: bool = False,
) -> Screen:
    """Lay a run out on a screen of this size; `place` is its number among all runs.

    `problem` says why the server does not answer; the figures are then old.
    """
    number = f"run {place[0]} of {place[1]}" if place[1] > 1 else ""
    head = [_ends(f"csdf-edge top  {url}", number, width, "bold")]
    if problem:
        head.append(_line("!!", f"{problem}; trying again each second", COLOURS[Mark.ERROR]))
    if run is None:
        body = [_line("", "connecting" if waits else "no run streams now")] if not problem else []
    else:
        head += _head(run)
        body = list(_body(run, width))
    page = max(1, height - len(head) - 1)
    first = max(0, min(first_line, len(body) - page))
    seen = body[first : first + page]
    last = first + len(seen)
    keys = "q quit" + ("  j/k scroll" if len(body) > page else "")
    keys += "  n next run" if place[1] > 1 else ""
    counted = f"lines {first + 1} to {last} of {len(body)}" if len(body) > page else ""
    padding = [Text() for _ in range(page - len(seen))]
    rows = [*head, *seen, *padding, _ends(keys, counted, width, "dim")][:height]
    return Screen(tuple(_fitted(row, width, style) for row in rows), first, page)


def whole(run: ShownRun, width: int, style: Style) -> list[Text]:
    """Return all lines of a run, for an output that does not scroll."""
    return [_fitted(row, width, style) for row in (*_head(run), *_body(run, width))]


def _line(sign: str, text: str, style: str = "") -> Text:
    return Text(f"{sign} {text}" if sign else text, style)


def _ends(left: str, right: str, width: int, style: str) -> Text:
    gap = " " * max(2, width - len(left) - len(right))
    return Text(left + gap + right if right else left, style)


def _fitted(row: Text, width: int, style: Style) -> Text:
    """Cut a row to the width, with control characters escaped, in ASCII if it must be."""
    if row.plain.isascii() and row.plain.isprintable() and len(row.plain) <= width:
        return row
    made = Text(no_wrap=True)
    left = width
    for piece in row.divide(sorted({end for span in row.spans for end in (span.start, span.end)})):
        text = printable(piece.plain)
        if style.is_ascii:
            text = text.translate(_ASCII).encode("ascii", "replace").decode()
        kind = piece.spans[-1].style if piece.spans else row.style
        made.append(text[:left], kind)
        left -= min(left, len(text))
    return made


def _head(run: ShownRun) -> Iterator[Text]:
    figures = dict(run.figures)
    title = Text(run.name, "bold")
    title.append("  ")
    title.append(run.state, COLOURS[run.mark])
    title.append(f"  {run.about}", "dim")
    yield title
    yield Text(
        f"{figures['frames/s']} frames/s of {figures['predicted']} predicted; "
        f"latency {figures['median latency']} median, {figures['99 % latency']} at 99 %"
    )
    counted = ("frames", "dropped", "recoveries", "in flight")
    yield Text(", ".join(f"{label} {figures[label]}" for label in counted))


def _body(run: ShownRun, width: int) -> Iterator[Text]:
    for sentence in run.sentences:
        yield _line(SIGNS[sentence.mark], sentence.text, COLOURS[sentence.mark])
    yield Text()
    yield _heading(
        f"   {'NODE':<{NAME}} {'STATE':<{STATE}} {'BUSY':<{BAR + SHARE + 1}} {'WAITS':<{WAITS}} "
        f"{'MEMORY':<{MEMORY}} COMPUTES WITH"
    )
    yield from map(_node, run.nodes)
    yield Text()
    yield from _fifos(run.channels, width)
    yield Text()
    yield _heading(f"   {'PHASE':<{NAME}} {'LAYERS':<{STATE}} {'TIME OF A FIRING':<32} FIRINGS")
    for node in run.nodes:
        for phase in node.phases:
            times = phase.firings.removeprefix("fired ").removesuffix(" times")
            row = f"   {_cut(phase.name, NAME)} {phase.layers:<{STATE}} {phase.time:<32} {times}"
            yield Text(row)
    yield Text()
    yield _heading("   EVENTS")
    for event in run.events:
        row = f"{event.age:>16}  {event.text}"
        yield _line(SIGNS[event.mark], row, COLOURS[event.mark])


def _heading(text: str) -> Text:
    return Text(text, "dim")


def _cut(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else f"{text[: width - 1]}…"


def _node(node: NodeRow) -> Text:
    sign = SIGNS[node.mark] if node.mark is not Mark.NONE else "> " if node.is_bottleneck else "  "
    row = Text(f"{sign} {_cut(node.name, NAME)} ", "bold" if node.is_bottleneck else "")
    row.append(f"{node.state:<{STATE}} ", COLOURS[node.mark])
    row.append(_bar(node.busy), "yellow" if node.is_bottleneck else "cyan")
    row.append(f" {node.busy.text if node.busy else '':>{SHARE}} {node.waited:>{WAITS}} ")
    memory = node.memory
    row.append(
        _cut(memory.text if memory else "", MEMORY), COLOURS[memory.mark if memory else Mark.NONE]
    )
    row.append(f" {node.engine}", "dim")
    return row  # fmt: skip


def _bar(gauge: Gauge | None, width: int = BAR) -> str:
    if gauge is None:
        return " " * width
    filled = round(gauge.share * width)
    return "█" * filled + "░" * (width - filled)


def _fifos(channels: Sequence[ChannelRow], width: int) -> Iterator[Text]:
    ends = [f"{channel.producer} → {channel.consumer}" for channel in channels]
    most = min(max(map(len, ends), default=0), width // 2)
    yield _heading(f"   {'FIFO':<{most}} {'FRAMES':<{BAR + 13}} TENSOR")
    for channel, between in zip(channels, ends, strict=True):
        row = Text(f"   {_cut(between, most)} ")
        row.append(_bar(channel.fill), "yellow" if channel.is_full else "cyan")
        row.append(f" {channel.fill.text:<7} {'full' if channel.is_full else '':<4} ")
        row.append(f"{channel.name}, {channel.frame}", "dim")
        yield row
