"""Draws the figures of the documentation.

    python docs/figures/draw.py [--output FOLDER]

`overview.svg`: network, phases and schedule of the worked example in `pipeline.py`, for the README.
`top.svg` and `page.svg`: what `live_run.py` shows of a run. A test draws them anew and compares.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from live_run import page_svg, top_svg
from pipeline import PARTITION, READS, SECONDS, Firing, example, fire

DEVICE_COLOURS = {"A": "#2f6db5", "B": "#d9822b", "C": "#3d8f52"}
INK, FAINT, PAPER = "#24292f", "#8a929b", "#ffffff"
WIDTH, HEIGHT = 960, 524
SECOND = 17.0
"""Width of one second in the schedules."""
UNTIL_S = 24


class Drawing:
    """An SVG as a list of elements."""

    def __init__(self) -> None:
        self._elements: list[str] = []

    def add(self, tag: str, text: str | None = None, **attributes: object) -> None:
        """One element; underscores in attribute names become hyphens."""
        written = " ".join(f'{k.replace("_", "-")}="{v}"' for k, v in attributes.items())
        end = "/>" if text is None else f">{escape(text)}</{tag}>"
        self._elements.append(f"<{tag} {written}{end}")

    def text(self, x: float, y: float, text: str, size: int = 13, **attributes: object) -> None:
        """Text whose baseline starts at (x, y); `text_anchor` and others as in SVG."""
        self.add("text", text, x=x, y=y, font_size=size, **{"fill": INK, **attributes})

    def box(self, x: float, y: float, width: float, height: float, colour: str, text: str) -> None:
        """A filled box with white text in its middle."""
        self.add("rect", x=x, y=y, width=width, height=height, rx=5, fill=colour)
        middle = {"text_anchor": "middle", "fill": PAPER, "font_weight": 600}
        self.text(x + width / 2, y + height / 2 + 4.5, text, **middle)

    def arrow(self, x0: float, y0: float, x1: float, y1: float) -> None:
        """A curve that leaves and arrives level, with a head at its end."""
        bend = (x1 - x0) * 0.5
        path = f"M{x0},{y0} C{x0 + bend},{y0} {x1 - bend - 4},{y1} {x1 - 4},{y1}"
        style = {"fill": "none", "stroke": INK, "stroke_width": 1.4, "marker_end": "url(#head)"}
        self.add("path", d=path, **style)

    def badge(self, x: float, y: float, text: str) -> None:
        """A small round label on an arrow."""
        self.add("circle", cx=x, cy=y, r=8.5, fill=PAPER, stroke=INK)
        self.text(x, y + 4, text, 11, text_anchor="middle")

    def svg(self, title: str) -> str:
        """The whole file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="Helvetica, Arial, sans-serif">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="4" refY="4" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{INK}"/>'
            "</marker></defs>"
        )
        paper = f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="{PAPER}"/>'
        parts = [head, f"<title>{escape(title)}</title>", marker, paper, *self._elements, "</svg>"]
        return "\n".join(parts) + "\n"


def overview() -> str:
    """The README's picture, in three parts."""
    drawing = Drawing()
    _network(drawing, 24, 30)
    _phases(drawing, 388, 30)
    _schedules(drawing, 24, 292)
    return drawing.svg("A network over three devices: layers, phases and channels, schedule")


def _network(drawing: Drawing, left: float, top: float) -> None:
    drawing.text(left, top, "1  A device for every layer", 15, font_weight=700)
    drawing.text(left, top + 20, "colour: device; number: seconds of work", 12, fill=FAINT)
    places = {
        "stem": (44, 120),
        "left1": (122, 80),
        "left2": (204, 80),
        "right": (163, 160),
        "head": (286, 120),
    }
    at = {name: (left + x, top + y) for name, (x, y) in places.items()}
    drawing.text(left - 10, top + 124, "image", 12)
    drawing.arrow(left + 25, top + 120, left + 44, top + 120)
    for name, reads in READS.items():
        for source in reads:
            if source in at:
                drawing.arrow(at[source][0] + 54, at[source][1], *at[name])
    for name, (x, y) in at.items():
        drawing.box(x, y - 14, 54, 28, DEVICE_COLOURS[PARTITION[name]], name)
        drawing.text(x + 27, y + 28, f"{SECONDS[name]} s", 11, text_anchor="middle", fill=FAINT)


def _phases(drawing: Drawing, left: float, top: float) -> None:
    dataflow, pipeline = example()
    drawing.text(left, top, "2  Phases, channels and skews", 15, font_weight=700)
    note = "badge: frames that a channel may hold; proved free of deadlock with these"
    drawing.text(left, top + 20, note, 12, fill=FAINT)
    lanes = {"@host": 58, "A": 108, "B": 158, "C": 208}
    for device, y in lanes.items():
        drawing.add("rect", x=left, y=top + y - 22, width=548, height=44, rx=5, fill="#f3f5f7")
        drawing.text(left + 10, top + y + 5, device.lstrip("@"), font_weight=700)
    middle = {phase.name: _middle(left, pipeline.skew[phase.name]) for phase in dataflow.phases}
    ends = {"@source": "frames", "@sink": "results"}
    boxes = {
        phase.name: (middle[phase.name], top + lanes[phase.device]) for phase in dataflow.phases
    }
    for name in ends:
        boxes[name] = (_middle(left, pipeline.skew[name]), top + lanes["@host"])
    for flow in dataflow.flows:
        (x0, y0), (x1, y1) = boxes[flow.source], boxes[flow.targets[0]]
        drawing.arrow(x0 + 32, y0, x1 - 32, y1)
        capacity = str(pipeline.capacity_frames[flow.name])
        drawing.badge(*_along(x0 + 32, y0, x1 - 32, y1), capacity)
    for phase in dataflow.phases:
        x, y = boxes[phase.name]
        drawing.box(x - 32, y - 14, 64, 28, DEVICE_COLOURS[phase.device], phase.name)
    for name, shown in ends.items():
        x, y = boxes[name]
        drawing.box(x - 32, y - 14, 64, 28, "#5b6670", shown)
    for skew in range(max(pipeline.skew.values()) + 1):
        x = _middle(left, skew)
        drawing.text(x, top + 246, f"σ = {skew}", 12, text_anchor="middle", fill=FAINT)


def _middle(left: float, skew: int) -> float:
    return left + 92 + skew * 104


def _along(x0: float, y0: float, x1: float, y1: float) -> tuple[float, float]:
    """A point on the arrow between its ends, nearer to the lower one, where arrows lie apart."""
    share = 0.62 if y1 > y0 else 0.38
    bent = share * share * (3 - 2 * share)
    return (x0 + x1) / 2 + (share - 0.5) * (x1 - x0) * 0.6, y0 + (y1 - y0) * bent


def _schedules(drawing: Drawing, left: float, top: float) -> None:
    dataflow, pipeline = example()
    drawing.text(left, top, "3  The schedule", 15, font_weight=700)
    note = "number: frame. A fires its first phase (plain) and its last (dotted)"
    drawing.text(left, top + 20, note, 12, fill=FAINT)
    strict = fire(dataflow, pipeline.capacity_frames, "strict", UNTIL_S)
    pipelined = fire(dataflow, pipeline.capacity_frames, "pipelined", UNTIL_S)
    half = WIDTH / 2 - 4
    _schedule(drawing, left, top + 34, "strict: frame by frame", strict)
    _schedule(drawing, half + 18, top + 34, "pipelined: oldest ready frame", pipelined)


def _schedule(
    drawing: Drawing, left: float, top: float, title: str, firings: Iterable[Firing]
) -> None:
    firings = list(firings)
    chart = left + 26
    results = sorted(firing.end_s for firing in firings if firing.phase == "A/1")
    period_s = results[-1] - results[-2]
    drawing.text(left, top + 18, title, 13, font_weight=600)
    told = f"a result every {period_s} s"
    drawing.text(chart + UNTIL_S * SECOND, top + 18, told, 13, text_anchor="end", font_weight=600)
    for row, device in enumerate(DEVICE_COLOURS):
        y = top + 32 + row * 46
        drawing.text(left, y + 23, device, font_weight=700)
        drawing.add("rect", x=chart, y=y, width=UNTIL_S * SECOND, height=36, rx=3, fill="#f3f5f7")
    rows = {device: top + 32 + row * 46 for row, device in enumerate(DEVICE_COLOURS)}
    for firing in firings:
        x, y = chart + firing.start_s * SECOND, rows[firing.device]
        width = (firing.end_s - firing.start_s) * SECOND
        colour = DEVICE_COLOURS[firing.device]
        drawing.box(x + 0.7, y + 1, width - 1.4, 34, colour, str(firing.frame))
        if firing.phase == "A/1":
            for at in (y + 8, y + 28):
                line = {"stroke": PAPER, "stroke_width": 2.5, "stroke_dasharray": "3 3"}
                drawing.add("line", x1=x + 4, x2=x + width - 4, y1=at, y2=at, **line)
    axis = top + 32 + 3 * 46
    for second in range(0, UNTIL_S + 1, 4):
        x = chart + second * SECOND
        drawing.text(x, axis + 10, f"{second} s", 11, text_anchor="middle", fill=FAINT)


def main() -> None:
    """Writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, metavar="FOLDER")
    folder: Path = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("overview", overview()), ("top", top_svg()), ("page", page_svg())):
        (folder / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
