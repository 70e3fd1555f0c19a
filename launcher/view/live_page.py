"""Elements of a server's page that show its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.quantities import duration, megabytes, rate, seconds
from launcher.view.charts import COLOURS, Line, line_chart
from launcher.view.elements import Child, PageElement, element, table
from launcher.view.history import Interval, Sample, intervals
from launcher.view.model import RunView
from launcher.view.plan_picture import plan_picture
from launcher.view.shown import Gauge, Mark, NodeRow, Sentence, ShownRun, shown

STYLE = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
"""The style of the page and of reports."""

NO_RUN = "No run streams now."

MOST_EVENTS = 20
"""How many of the last events the page shows."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A run and what it did lately, oldest sample first."""

    view: RunView
    recent: Sequence[Sample]


def live_page(runs: Sequence[Watched]) -> PageElement:
    """Return the content of the page: a section for each run."""
    sections = [_run(run) for run in runs] or [element("p", NO_RUN, class_="empty")]
    return element("main", *sections)


def _run(run: Watched) -> PageElement:
    before = run.recent[0].latency if run.recent else None
    rows, over_time = shown(run.view, before), intervals(run.recent)
    return element(
        "section",
        element("h1", rows.name, " ", pill(rows.state, rows.mark)),
        element("p", rows.about, class_="faint"),
        sentences(rows.sentences),
        figures(rows.figures),
        element(
            "div",
            element("div", element("h2", "Plan"), plan_picture(rows), class_="picture"),
            element(
                "div",
                element("h2", "Over time"),
                *charts(over_time, run.view.predicted_rate, _ages(over_time)),
                class_="charts",
            ),
            class_="columns",
        ),
        element("h2", "Nodes"),
        _nodes(rows.nodes),
        element("h2", "Events"),
        _events(rows),
    )


def pill(text: str, mark: Mark) -> PageElement:
    """Return a word with the colour of its mark."""
    return element("span", text, class_=f"pill mark-{mark.value}")


def sentences(given: Sequence[Sentence]) -> PageElement:
    """Return a list of sentences with their marks."""
    words = {Mark.ERROR: "error: ", Mark.WARNING: "warning: "}
    return element(
        "ul",
        *(
            element("li", words.get(each.mark, ""), each.text, class_=f"mark-{each.mark.value}")
            for each in given
        ),
        class_="sentences",
    )


def figures(given: Sequence[tuple[str, str]]) -> PageElement:
    """Return labels and values as tiles."""
    tiles = (
        element("div", element("dt", label), element("dd", value), class_="tile")
        for label, value in given
    )
    return element("dl", *tiles, class_="figures")


def charts(
    over_time: Sequence[Interval], predicted: float, times: tuple[str, str]
) -> Iterator[PageElement]:
    """Return the charts of rate, latency and memory; `times` are the words at both ends."""
    at = [each.until_s for each in over_time]
    yield line_chart(
        "frames/s",
        [
            Line("measured", [(each.until_s, each.rate) for each in over_time]),
            Line("predicted", [(second, predicted) for second in at], is_dashed=True),
        ],
        times=times,
        written=rate,
    )
    yield line_chart(
        "latency",
        [
            Line("median", [(each.until_s, each.median_s) for each in over_time]),
            Line("99 %", [(each.until_s, each.percentile_99_s) for each in over_time]),
        ],
        times=times,
        written=seconds,
    )
    peaks: dict[str, int] = {}
    for each in over_time:
        for name, size in each.rss_bytes.items():
            peaks[name] = max(size, peaks.get(name, 0))
    fullest = set(sorted(peaks, key=lambda name: -peaks[name])[:COLOURS])
    yield line_chart(
        "memory",
        [
            Line(name, [(each.until_s, each.rss_bytes.get(name)) for each in over_time])
            for name in peaks
            if name in fullest
        ],
        times=times,
        written=lambda size: megabytes(round(size)),
    )


def _ages(over_time: Sequence[Interval]) -> tuple[str, str]:
    if not over_time:
        return "", ""
    return f"{duration(over_time[-1].until_s - over_time[0].until_s)} ago", "now"


def _nodes(nodes: Sequence[NodeRow]) -> PageElement:
    heads = ("node", "state", "busy", "waits for room", "memory", "computes with", "traffic")
    metered = any(node.energy for node in nodes)
    return table(
        (*heads, *(["energy"] if metered else [])),
        (
            (
                node.name,
                pill(node.state, Mark.FINE if node.mark is Mark.NONE else node.mark),
                gauge(node.busy),
                node.waited,
                gauge(node.memory),
                node.engine,
                node.traffic,
                *([node.energy] if metered else []),
            )
            for node in nodes
        ),
        label="nodes",
    )


def gauge(given: Gauge | None) -> Child:
    """Return a bar with its text."""
    if given is None:
        return ""
    bar = element(
        "svg",
        element("rect", width=60, height=8, rx=2, class_="bar"),
        element(
            "rect",
            width=max(1.0, 60 * given.share) if given.share else 0,
            height=8,
            rx=2,
            class_=f"filled mark-{given.mark.value}",
        ),
        viewBox="0 0 60 8",
        width=60,
        height=8,
        aria_hidden="true",
    )
    return element("span", bar, " ", given.text, class_="gauge")


def _events(run: ShownRun) -> PageElement:
    if not run.events:
        return element("p", "Nothing has happened yet.", class_="faint")
    rows = (
        element("li", element("span", each.age, class_="faint"), " ", each.text)
        if each.mark is Mark.NONE
        else element(
            "li",
            element("span", each.age, class_="faint"),
            " ",
            pill(each.mark.value, each.mark),
            " ",
            each.text,
        )
        for each in run.events[:MOST_EVENTS]
    )
    return element("ul", *rows, class_="events")
