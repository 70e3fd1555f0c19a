"""Draws `launch top` and the page of a server on a run that was made up for the picture.

The lines of the terminal and the elements of the page are those that the commands show.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).parents[2]))
from launcher.top.screen import Style
from launcher.top.watching import Viewed, Watching
from launcher.view.elements import SVG, PageElement, as_html, element
from launcher.view.history import Sample, intervals
from launcher.view.live_page import STYLE, charts
from launcher.view.model import (
    ChannelView,
    EventView,
    LatencyView,
    NodeState,
    NodeView,
    PhaseView,
    RunView,
)
from launcher.view.plan_picture import plan_picture
from launcher.view.shown import shown

HOST = "@host"
BOUNDS_S = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)
MADE_UP = {  # node → busy, waited, megabytes held and predicted, phases: layers, seconds
    "pi-1": (0.61, 0.22, 84, 90, ((31, 0.021), (4, 0.006))),
    "pi-2": (0.97, 0.00, 96, 95, ((52, 0.043),)),
    "pi-3": (0.55, 0.03, 71, 80, ((38, 0.024),)),
}
CHANNELS = (
    (HOST, "pi-1", "image", 3, 3, 602_112),
    ("pi-1", "pi-2", "pool1", 4, 4, 802_816),
    ("pi-2", "pi-3", "conv4_x", 1, 4, 401_408),
    ("pi-3", "pi-1", "features", 0, 3, 8_192),
    ("pi-1", HOST, "scores", 0, 3, 4_000),
)
LETTER, ROW, MARGIN = 7.9, 18, 12
PAPER, INK = "#16191d", "#e6e8ea"
INKS = {
    "cyan": "#56b6c2", "yellow": "#e5b567", "green": "#8fc379", "bold red": "#f07178",
    "dim": "#8b929a", "bold": "#ffffff",
}  # fmt: skip


def view(second: int, frames: int) -> RunView:
    """The run after so many seconds."""
    nodes = [
        NodeView(
            name,
            NodeState.ACTIVE,
            engine="onnxruntime",
            device="cpu",
            busy=busy,
            waited=waited,
            rss_bytes=held * 10**6,
            predicted_bytes=predicted * 10**6,
            limit_bytes=512 * 10**6,
            phases=tuple(
                PhaseView(f"{name}/{number}", layers, frames, frames * seconds, seconds * 0.97)
                for number, (layers, seconds) in enumerate(phases)
            ),
        )
        for name, (busy, waited, held, predicted, phases) in MADE_UP.items()
    ]
    lost = NodeView("pi-4", NodeState.LOST, reason="it has not answered for 3.0 s")
    counts = tuple(int(frames * share) for share in (0, 0.02, 0.61, 0.97, 0.99, 1, 1, 1))
    return RunView(
        taken_s=second,
        started_s=-7200,
        state="streaming",
        epoch=2,
        models=("resnet50",),
        strategy="sequential",
        batch=1,
        predicted_rate=23.2,
        rate=22.6,
        frames_total=frames,
        dropped_total=0,
        recoveries_total=1,
        in_flight=9,
        latency=LatencyView(BOUNDS_S, counts, 0.19 * frames),
        nodes=(*nodes, lost),
        channels=tuple(ChannelView(t, p, c, n, most, size) for p, c, t, n, most, size in CHANNELS),
        events=(
            EventView(196, "warning", "pi-4 is lost: it has not answered for 3.0 s"),
            EventView(198, "info", "streaming again on pi-1, pi-2, pi-3"),
        ),
    )


def samples() -> list[Sample]:
    """Five minutes of it, in which a node was lost."""
    made, frames = [], 160_000
    for second in range(0, 301, 2):
        rate = 29.5 if second < 196 else 0 if second < 200 else 22.6
        frames += round(2 * rate + (1.2 * math.sin(second / 9) if rate else 0))
        seen = view(second, frames)
        memory = {node.name: node.rss_bytes or 0 for node in seen.nodes if node.rss_bytes}
        made.append(Sample(second, frames, 0, seen.latency, {}, memory))
    return made


def top_svg() -> str:
    """`launch top` in a terminal of 80 × 24."""
    run = view(300, samples()[-1].frames)
    state = Watching("http://127.0.0.1:8000").handle(Viewed((run,)), 1)
    parts = []
    for number, row in enumerate(state.shows(80, 24, Style()).rows):
        at = 0
        for piece in row.divide(sorted({e for s in row.spans for e in (s.start, s.end)})):
            style = str(piece.spans[-1].style if piece.spans else row.style)
            if piece.plain.strip():
                parts.append(_text(piece.plain, at, number, style))
            at += len(piece.plain)
    width, height = 80 * LETTER + 2 * MARGIN, 24 * ROW + 2 * MARGIN
    return "\n".join((
        f'<svg xmlns="{SVG}" viewBox="0 0 {width:.0f} {height}" font-size="13" '
        'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace">',
        "<title>launch top in a terminal of 80 by 24</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        *parts,
        "</svg>\n",
    ))  # fmt: skip


def _text(text: str, column: int, row: int, style: str) -> str:
    begins = column + len(text) - len(text.lstrip())
    text = text.strip()
    bold = ' font-weight="bold"' if "bold" in style else ""
    return (
        f'<text x="{MARGIN + begins * LETTER:.1f}" y="{MARGIN + 13 + row * ROW}" '
        f'textLength="{len(text) * LETTER:.1f}" xml:space="preserve" '
        f'fill="{INKS.get(style, INK)}"{bold}>{escape(text)}</text>'
    )


def page_svg() -> str:
    """The plan and the charts of the page."""
    made = samples()
    run = view(300, made[-1].frames)
    return as_html(
        element(
            "svg",
            element("title", "The page of a server: the plan, and rates over time"),
            element("style", STYLE),
            element("rect", width="100%", height="100%", rx=8, class_="gap"),
            *_placed(run, made),
            xmlns=SVG,
            viewBox="0 0 900 520",
            font_family="system-ui, sans-serif",
        )
    ) + "\n"  # fmt: skip


def _placed(run: RunView, made: list[Sample]) -> Iterator[PageElement]:
    plan = plan_picture(shown(run))
    yield _at(plan, 16, 16, int(plan.attributes["width"]), 490)
    drawn = charts(intervals(made), run.predicted_rate, ("5 min ago", "now"))
    for number, chart in enumerate(drawn):
        yield _at(chart, 420, 16 + 166 * number, 460, 150)


def _at(drawing: PageElement, x: int, y: int, width: int, height: int) -> PageElement:
    place = {"x": str(x), "y": str(y), "width": str(width), "height": str(height)}
    kept = {key: text for key, text in drawing.attributes.items() if key != "class"}
    return PageElement(drawing.tag, {**kept, **place}, drawing.children)
