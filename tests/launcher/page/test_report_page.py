"""The page of `--report`: one file that says what was predicted, measured, and went wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from launcher.errors import BadInputError, RunFailedError
from launcher.files import check_can_write
from launcher.results.comparison.agreement import Agreement
from launcher.results.page.comparison import node_rows, of_run, of_view, run_problems
from launcher.results.page.gantt import gantt, static_order, traced_firings
from launcher.results.page.page import RunRecord, report_page
from launcher.results.page.recording import RunRecorder
from launcher.results.sentences import report_lines
from launcher.results.summary import figure_lines, limit_lines
from launcher.view.elements import as_html
from launcher.view.history import History, sample_of
from launcher.view.model import EventView, NodeState, PhaseView
from partition.plan import PlannedPhase
from tests.launcher.test_report import PLAN, report
from tests.view.views import STARTED_S, latency, node, run

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
SECOND = PlannedPhase("a/1", "a", 1, ("l3",), ("y",), ("z",), 3, 0.01)


class Text(HTMLParser):
    """The text of a page, and its elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags = [""]
        self.parts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        if self.tags[-1] != "style":
            self.parts.append(data)

    def __str__(self) -> str:
        return " ".join(self.parts)


def streamed(seconds: int) -> History:
    history = History()
    for second in range(seconds):
        view = run(
            taken_s=STARTED_S + second, frames_total=10 * second, latency=latency(10 * second)
        )
        history.add(sample_of(view))
    return history


def record(**changes: object) -> RunRecord:
    found = report()
    usual = RunRecord(
        "net",
        PLAN,
        "model: net.onnx\n",
        advice=limit_lines(found),
        summary=figure_lines(found),
        lines=report_lines(found),
        compared=of_run(found, PLAN),
        nodes=found.nodes,
        problems=run_problems(found),
        view=run(nodes=(node("a", phases=(PhaseView("a/0", 2, 300, 15.0, 0.04),)),), events=()),
        history=streamed(30),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


def test_each_prediction_is_shown_next_to_its_measurement() -> None:
    rows = {row.what: row for row in record().compared}
    rate = rows["frames/s, once the pipeline is full"]
    assert (rate.planned, rate.predicted, rate.measured) == ("20", "24.3", "6")
    assert rows["median latency"].planned == "100.0 ms"
    assert rows["median latency"].measured != ""
    assert rows["most in FIFOs"].predicted != ""


def test_the_page_has_the_sentences_of_the_text_report_and_the_configuration() -> None:
    text = str(Text(report_page(record())))
    for line in report_lines(report()):
        assert line in text
    assert "model: net.onnx" in text


def test_the_page_loads_nothing_and_runs_no_script() -> None:
    page = report_page(record())
    assert "script" not in Text(page).tags
    assert not re.findall(r"(?:src|href)=|url\(|@import", page)
    assert "default-src 'none'; style-src 'sha256-" in unescape(page)


def test_what_went_wrong_comes_first_and_nothing_is_said_to_be_fine_then() -> None:
    lost = node("b", state=NodeState.LOST, reason="its process ended")
    view = run(nodes=(node("a"), lost))
    bad = report(Agreement(1.0, 2, "y"))
    text = str(Text(report_page(record(view=view, problems=run_problems(bad)))))
    assert "something went wrong" in text
    for sentence in (
        "b is lost: its process ended",
        "after 10 min: b is lost: it has not answered for 3.0 s",
        "the results differ from the whole model's",
    ):
        assert 0 < text.index(sentence) < text.index("Predicted and measured")
    assert "Nothing was noticed" in str(Text(report_page(record())))


def test_the_page_begins_with_the_bottleneck_and_what_would_help() -> None:
    text = str(Text(report_page(record())))
    (advice,) = limit_lines(report())
    assert text.index(advice) < text.index("6 frames/s once the pipeline is full")
    assert text.index(advice) < text.index("Predicted and measured")
    served = str(Text(report_page(record(advice=(), summary=()))))
    assert served.index("is the bottleneck") < served.index("What went wrong")


def test_a_page_says_that_watts_are_assumed() -> None:
    row = next(row for row in record().compared if row.what == "energy per frame")
    assert "by assumed watts of all nodes" in row.predicted
    assert " assumed" in node_rows(record().nodes).rows[0][8]


def test_names_from_outside_are_text() -> None:
    evil = "<script>alert(1)</script>\x1b"
    view = run(models=(evil,), nodes=(node(evil),), events=(EventView(STARTED_S, "error", evil),))
    page = report_page(record(title=evil, view=view, config=evil, lines=[evil]))
    assert "script" not in Text(page).tags
    assert "\x1b" not in page


def test_phases_and_schedule_are_those_of_the_plan_that_the_run_ended_with() -> None:
    assert "One period of the plan" in str(Text(report_page(record())))
    other = run(nodes=(node("a", phases=(PhaseView("a/0", 3, 300, 15.0, 0.04),)),))
    text = str(Text(report_page(record(view=other))))
    assert "The plan changed during the run" in text
    assert "One period of the plan" not in text


def test_a_page_does_not_grow_with_the_run() -> None:
    short, long = (len(report_page(record(history=streamed(n)))) for n in (600, 20_000))
    assert long < 1.2 * short


def test_without_a_frame_the_page_has_the_plan_and_the_error() -> None:
    page = report_page(record(view=None, history=History(), problems=["node 'a' is away"]))
    assert "node 'a' is away" in str(Text(page))


def test_one_period_has_each_phase_once_the_oldest_frame_first() -> None:
    plan = replace(PLAN, phases=(*PLAN.phases, SECOND))
    first, second = static_order(plan, {"a/0": 0.06})
    assert (first.phase, first.text, first.begins_s, first.ends_s) == ("a/1", "k − 3", 0.0, 0.01)
    assert (second.phase, second.text, second.begins_s) == ("a/0", "k − 1", 0.01)
    assert second.ends_s == pytest.approx(0.07)


def test_a_trace_is_drawn_from_its_middle_for_some_periods() -> None:
    names = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "a"}}
    fired = [
        {"cat": "firing", "ph": "X", "pid": 1, "ts": 1e6 * n, "dur": 5e5}
        | {"args": {"phase": "a/0", "frame": n}}
        for n in range(100)
    ]
    firings = traced_firings({"traceEvents": [names, *fired]}, 2.0)
    assert [firing.text for firing in firings] == ["50", "51", "52", "53", "54", "55"]
    assert (firings[0].node, firings[0].begins_s, firings[0].ends_s) == ("a", 0.0, 0.5)
    assert as_html(gantt(firings, 2.0, "a trace")).count("<rect") == 6
    assert traced_firings({"traceEvents": []}, 1.0) == []


def test_a_server_is_compared_by_its_view() -> None:
    rows = {row.what: row for row in of_view(run(), PLAN)}
    assert rows["frames/s"].planned == "12.5"
    assert rows["frames/s"].measured == "11.1 over all the time"


def test_a_run_that_fails_has_a_page_with_its_error(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    with pytest.raises(RunFailedError), RunRecorder(path, run, record(problems=())):
        raise RunFailedError("no node is left")
    assert "no node is left" in str(Text(path.read_text()))


def test_without_the_option_nobody_looks_at_the_run() -> None:
    def look() -> None:
        raise AssertionError("somebody looks")

    with RunRecorder(None, look, record()) as recorder:  # type: ignore[arg-type]
        recorder.write(record())


def test_a_place_where_no_page_can_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "out.html"):
        with pytest.raises(BadInputError, match="--report"):
            check_can_write(path, "--report")
    check_can_write(tmp_path / "out.html", "--report")
    check_can_write(None, "--report")


@pytest.mark.slow
def test_launch_writes_the_page_of_a_real_run(tmp_path: Path) -> None:
    cluster = yaml.safe_load((DIGITS / "cluster.yaml").read_text()) | {"strategy": "sequential"}
    cluster |= {name: str(DIGITS / cluster[name]) for name in ("model", "input", "truth")}
    cluster["serve"] = {"token": "a secret of sixteen letters".replace(" ", "-")}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    code = "from launcher.commands.launch import main; main()"
    command = [sys.executable, "-c", code, "cluster.yaml", "--report", "out.html", "--trace", "t"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out.html").read_text()
    text = str(Text(page))
    assert "Some firings from the middle of the trace" in text
    assert "360 frames in" in text
    assert page.count('class="line c0"') >= 3
    assert "a-secret-of" not in page
