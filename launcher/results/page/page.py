"""Makes the page of a run's report: one HTML file that loads nothing and runs no script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from launcher.quantities import duration, seconds
from launcher.results.page.comparison import Compared, is_plan_of, node_rows, phase_rows
from launcher.results.page.gantt import gantt, static_order, traced_firings
from launcher.results.report import NodeReport
from launcher.view.elements import PageElement, as_html, element, table
from launcher.view.history import History, intervals
from launcher.view.live_page import STYLE, charts, pill
from launcher.view.model import RunView
from launcher.view.plan_picture import plan_picture
from launcher.view.shown import Mark, limit_sentences, node_sentences, shown
from partition.plan import Plan

_STYLE = STYLE + Path(__file__).with_name("report.css").read_text(encoding="utf-8")

PROBLEM_LEVELS = {"warning": Mark.WARNING, "error": Mark.ERROR}


@dataclass(frozen=True)
class RunRecord:
    """The contents of a page.

    `advice` has sentences on the bottleneck and on what would help, `summary` the other lines of a
    short report, and `lines` all sentences of the text report. `compared` has the predictions of
    the whole run next to its measurements. `problems` are sentences on what went wrong beyond what
    the view's events say. Without a view, no frame was streamed.
    """

    title: str
    plan: Plan
    config: str
    advice: Sequence[str] = ()
    summary: Sequence[str] = ()
    lines: Sequence[str] = ()
    compared: Sequence[Compared] = ()
    nodes: Sequence[NodeReport] = ()
    problems: Sequence[str] = ()
    view: RunView | None = None
    history: History = field(default_factory=History)
    trace: Mapping[str, Any] | None = None


def report_page(record: RunRecord) -> str:
    """Return the page as HTML."""
    policy = f"default-src 'none'; style-src {_digest(_STYLE)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("title", f"csdf-edge: {record.title}"),
    )
    body = element("body", element("main", *_sections(record)))
    # The style is not escaped, since a browser takes it literally.
    styled = as_html(head).replace("</head>", f"<style>{_STYLE}</style></head>")
    return f'<!doctype html>\n<html lang="en">{styled}\n{as_html(body)}</html>\n'


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _sections(record: RunRecord) -> list[PageElement]:
    problems = _problems(record)
    verdict = pill("something went wrong", Mark.ERROR) if problems else pill("fine", Mark.FINE)
    parts = [
        element("h1", record.title, " ", verdict),
        *(element("p", text, class_="advice") for text in _advice(record)),
        *(element("p", text) for text in record.summary),
        element("h2", "What went wrong"),
        _list(problems, "sentences") if problems else element("p", "Nothing was noticed."),
    ]
    if record.compared:
        parts += [element("h2", "Predicted and measured"), _compared(record.compared)]
    if record.nodes:
        parts += [element("h2", "Nodes"), node_rows(record.nodes).on_page("nodes")]
    if record.view is not None:
        parts += _streamed(record, record.view)
    parts += [element("h2", "Schedule"), *_schedule(record)]
    sentences = record.lines or [f"strategy: {record.plan.strategy}: {record.plan.explanation}"]
    lines = _list([element("li", line) for line in sentences], "lines")
    parts += [element("h2", "In words"), lines]
    parts += [
        element("h2", "Configuration"),
        element("p", "Without passwords and tokens.", class_="faint"),
        element("pre", record.config),
    ]
    return parts


def _advice(record: RunRecord) -> Sequence[str]:
    """Return what limits the rate: of a run, or of what was served, by its last view."""
    if record.advice or record.view is None:
        return record.advice
    return [sentence.text for sentence in limit_sentences(record.view)]


def _list(items: Sequence[PageElement], kind: str) -> PageElement:
    return element("ul", *items, class_=kind)


def _problems(record: RunRecord) -> list[PageElement]:
    found = [(text, Mark.ERROR) for text in record.problems]
    if record.view is not None:
        found += [(each.text, each.mark) for each in node_sentences(record.view)]
        found += [
            (f"after {duration(event.at_s - record.view.started_s)}: {event.text}", mark)
            for event in record.view.events
            if (mark := PROBLEM_LEVELS.get(event.level)) is not None
        ]
    return [element("li", text, class_=f"mark-{mark.value}") for text, mark in found]


def _compared(rows: Sequence[Compared]) -> PageElement:
    heads = ("", "before the run", "from warm-up times", "measured")
    cells = ((row.what, row.planned, row.predicted, row.measured) for row in rows)
    return table(heads, cells, label="predicted and measured")


def _streamed(record: RunRecord, view: RunView) -> list[PageElement]:
    over_time = intervals(record.history.samples)
    busy = {node.name: node.busy_fraction for node in record.nodes if node.phases}
    nodes = tuple(replace(node, busy=busy.get(node.name, node.busy)) for node in view.nodes)
    picture = plan_picture(shown(replace(view, nodes=nodes)))
    lasted = duration(over_time[-1].until_s - view.started_s) if over_time else ""
    return [
        element(
            "div",
            element("div", element("h2", "Plan"), picture, class_="picture"),
            element(
                "div",
                element("h2", "Over time"),
                *charts(over_time, view.predicted_rate, ("begin", f"after {lasted}")),
                class_="charts",
            ),
            class_="columns",
        ),
        element("h2", "Phases"),
        phase_rows(record.plan, view).on_page("phases"),
    ]


def _schedule(record: RunRecord) -> list[PageElement]:
    view = record.view
    if record.trace is None and view is not None and not is_plan_of(record.plan, view):
        return [element("p", "The plan changed during the run; its schedule is not known here.")]
    plan, period_s, source = record.plan, record.plan.period_s, "as planned"
    if (measured_s := _measured_period_s(record)) is not None:
        period_s, source = measured_s, "as measured"
    period = f"a period of {seconds(period_s)}"
    if record.trace is not None:
        firings = traced_firings(record.trace, period_s)
        about = (
            "Some firings from the middle of the trace, with the frame of each; the lines are "
            f"{period} apart, {source}."
        )
    else:
        measured = {} if record.view is None else {
            phase.name: phase.busy_s / phase.firings
            for node in record.view.nodes
            for phase in node.phases
            if phase.firings
        }  # fmt: skip
        firings = static_order(plan, measured)
        times = "as measured" if measured else "as planned"
        about = (
            f"One period of the plan: every phase fires once, for {times}. In period k, a phase "
            f"works on the frame that its box says; the line is the end of {period}, {source}."
        )
    return [element("p", about, class_="faint"), gantt(firings, period_s, about)]


def _measured_period_s(record: RunRecord) -> float | None:
    """Return the seconds between two firings of a phase while frames were computed, if any were."""
    busy = [each for each in intervals(record.history.samples) if each.rate > 0]
    frames = sum(each.rate * (each.until_s - each.from_s) for each in busy)
    lasted_s = sum(each.until_s - each.from_s for each in busy)
    return lasted_s / frames * record.plan.batch if frames else None
