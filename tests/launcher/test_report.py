"""What the user sees during a run and in its report."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from cnn.network import Tensor
from csdf.conversion.from_network import HOST, SINK, SOURCE
from launcher.core.recovery import Recovery
from launcher.progress import BarDisplay, LineDisplay
from launcher.results.comparison.agreement import Agreement
from launcher.results.limit import Limit, limit_of
from launcher.results.report import Accuracy, AloneReport, Report, make_report, plan_as_json
from launcher.results.report_text import plan_text, print_report, report_text
from launcher.results.sentences import report_lines
from launcher.results.summary import limit_lines, summary_lines
from launcher.run.runtime import RunResult, Update
from launcher.streaming.running import show_update
from nodes.protocol.messages import PROTOCOL, Stats, Welcome
from partition.devices import Device
from partition.plan import MemoryPrediction, Plan, PlannedChannel, PlannedPhase

PHASE = PlannedPhase("a/0", "a", 0, ("l1", "l2"), ("x",), ("y",), 1, 0.05)
WARMED_UP = PlannedPhase("a/0", "a", 0, ("l1", "l2"), ("x",), ("y",), 1, 0.04)
PLAN = Plan(
    network="net",
    model_digest="0" * 64,
    strategy="sequential",
    explanation="as it is",
    devices=(Device("a", memory_bytes=10**9), Device("idle")),
    assignment={"l1": "a", "l2": "a"},
    phases=(PHASE,),
    channels=(
        PlannedChannel(Tensor("x", (1, 250), "float32"), SOURCE, HOST, "a", ("a/0",), 3),
        PlannedChannel(Tensor("y", (1, 10), "float32"), "a/0", "a", HOST, (SINK,), 3),
    ),
    memory={
        "a": MemoryPrediction(40_000_000, 5_000_000, 5_000_000, 50_000_000, 45_000_000),
        "idle": MemoryPrediction(0, 0, 0, 50_000_000, 0),
    },
    period_s=0.05,
    latency_s=0.1,
    bytes_per_frame=1_234_567,
    proof="Live: proved.",
)
STATS = Stats(1, (4,), (0.3,), 0.6, 0.4, 10, 20, 95_000_000, 110_000_000, 30_000_000, 0, 0, 2000)
RESULT = RunResult(
    sent_s=(1.0, 1.1, 1.2, 1.3),
    received_s=(1.5, 1.6, 1.7, 2.0),
    stats={"a": STATS},
    idle_rss_bytes={"a": 46_000_000},
    warmup_s={"a": (0.04,)},
    first_result_s=1.5,
)


def report(agreement: Agreement | None = Agreement(1e-6, 2, "y")) -> Report:  # noqa: B008 - frozen
    return make_report(
        PLAN,
        replace(PLAN, phases=(WARMED_UP,)),
        RESULT,
        order="pipelined",
        input_description="4 inputs",
        first_result_s=3.5,
        agreement=agreement,
        accuracy=Accuracy(0.75, 1.0),
    )


def metered(
    *,
    cpu_s: tuple[float, float] = (0.4, 0.4),
    energy_j: tuple[float | None, float | None] = (12.0, 12.0),
    machines: dict[str, str | None] | None = None,
) -> Report:
    """A run of four frames in 0.6 s on nodes a and b, each of which has a layer."""
    devices = (Device("a", busy_w=20.0, idle_w=5.0), Device("b", busy_w=20.0, idle_w=5.0))
    plan = replace(
        PLAN,
        devices=devices,
        assignment={"l1": "a", "l2": "b"},
        phases=(PHASE, replace(PHASE, name="b/0", device="b")),
        memory={"a": PLAN.memory["a"], "b": PLAN.memory["a"]},
    )
    stats = {
        name: replace(STATS, cpu_s=cpu, energy_j=joules)
        for name, cpu, joules in zip("ab", cpu_s, energy_j, strict=True)
    }
    welcome = {
        name: Welcome(PROTOCOL, name, "1", "tcp://x:1", "e", "m", 1, 1, meter=f"RAPL of {name}")
        for name in "ab"
    }
    return make_report(
        plan,
        plan,
        replace(RESULT, stats=stats, welcome=welcome, warmup_s={"a": (0.04,), "b": (0.04,)}),
        order="pipelined",
        input_description="4 inputs",
        first_result_s=3.5,
        agreement=None,
        accuracy=None,
        machines=machines,
    )


def printed(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=110)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_times_are_those_of_the_launcher() -> None:
    found = report()
    assert found.seconds == pytest.approx(1.0)
    assert found.frames_per_second == pytest.approx(4.0)
    assert found.period_measured_s == pytest.approx(0.5 / 3)
    assert found.latency_s == pytest.approx(0.5)
    assert found.latency_worst_s == pytest.approx(0.7)
    assert found.period_planned_s == 0.05


def test_predictions_come_from_a_simulated_run_of_as_many_frames() -> None:
    found = report()
    assert found.period_predicted_s == pytest.approx(0.04, rel=0.1)
    # Of four frames, two have places at once and wait for those before; the others come later.
    assert 0.08 < found.latency_predicted_s < 0.16
    node, idle = found.nodes
    assert node.fifo_predicted_bytes == 3 * 1000
    assert node.fifo_measured_bytes == 2000
    assert (idle.fifo_predicted_bytes, idle.fifo_measured_bytes) == (0, 0)


def test_a_nodes_figures_are_predicted_and_measured() -> None:
    node, idle = report().nodes
    assert (node.layers, node.phases) == (2, 1)
    assert node.memory_predicted_bytes == 100_000_000
    assert node.memory_eq2_bytes == 45_000_000
    assert node.memory_measured_bytes == 110_000_000
    assert node.busy_fraction == pytest.approx(0.5)
    assert node.busy_s_per_frame == pytest.approx(0.075)
    assert (idle.layers, idle.phases, idle.memory_measured_bytes, idle.busy_fraction) == (
        0,
        0,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("agreement", "agrees", "error"),
    [
        (Agreement(1e-4, 0, "y"), True, 1e-4),
        (Agreement(1.01e-4, 0, "y"), False, 1.01e-4),
        (Agreement(math.inf, 0, "y"), False, None),
        (None, None, None),
    ],
)
def test_agreement_in_json(
    agreement: Agreement | None, agrees: bool | None, error: float | None
) -> None:
    data = json.loads(json.dumps(report(agreement).as_json(), allow_nan=False))
    assert data["agrees"] is agrees
    assert data["max_relative_error"] == error
    assert data["verified"] is (agreement is not None)


def test_verbose_people_are_told_everything() -> None:
    console = Console(file=io.StringIO(), width=110)
    found = report()
    print_report(found, console, verbose=True)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in (
        "45.0 MB", "100.0 MB", "110.0 MB", "30.0 MB", "50%",
        "4 frames in 1.00 s: 4.00 frames/s, 6.00 frames/s once full",
        f"predicted {1 / found.period_predicted_s:.2f} frames/s",
        f"predicted {found.latency_predicted_s * 1e3:.1f} ms",
        "at most 2.0 kB in FIFOs, predicted 3.0 kB", "20.00 frames/s before the run",
        "latency 500.0 ms in the median", "700.0 ms at worst; first result 3.5 s",
        "1.2 MB per frame between nodes",
        "agrees with ONNX Runtime on the whole model: largest relative difference 1.0e-06",
        "accuracy 75.00%; the whole model's is 100.00%",
        "proof: Live: proved.", "strategy: sequential: as it is",
    ):  # fmt: skip
        assert part in " ".join(text.split()), part


def test_the_first_screen_is_five_lines() -> None:
    lines = summary_lines(report())
    assert (
        lines[0]
        == "6 frames/s once the pipeline is full, 24.3 frames/s expected; 4 frames in 1.00 s"
    )
    assert lines[1].startswith("latency 500.0 ms in the median, ")
    assert lines[1].endswith(" expected; 700.0 ms at worst")
    assert lines[2] == "memory (peak): a 110.0 MB"
    assert lines[3] == (
        "agrees with ONNX Runtime on the whole model: difference 1.0e-06, allowed 1e-04; accuracy "
        "75.00%"
    )
    assert lines[4] == "bottleneck: messages (a is busy 50%); stream 50 frames or more"
    assert len(lines) == 5
    assert all(len(line) <= 110 for line in lines), "none is broken without a terminal"
    text = printed(report_text(report()))
    assert "proof" not in text
    assert "strategy" not in text


def test_memory_is_compared_with_one_node_alone_unless_the_plan_is_that() -> None:
    alone = AloneReport("a", 0.05, 150_000_000)
    (line,) = (line for line in summary_lines(replace(metered(), alone=alone)) if "memory" in line)
    assert line == "memory (peak): a 110.0 MB, b 110.0 MB; a alone 150.0 MB"
    found = replace(report(), alone=alone)
    assert not any("alone" in line for line in [*summary_lines(found), *report_lines(found)])


@pytest.mark.parametrize(
    ("limit", "changes", "sentence"),
    [
        (
            Limit("node", "a", 0.97),
            {},
            "bottleneck: a (busy 97%); a faster board, or one more, would help",
        ),
        (
            Limit("node", "a", 0.97),
            {"period_measured_s": 0.2, "period_predicted_s": 0.1},
            "slower than rehearsed: try `launch doctor`",
        ),
        (Limit("node", "a", 0.97, True), {}, "nodes share its cores: add a machine"),
        (
            Limit("link", "b", 0.8),
            {},
            "link of b (busy 80%); a faster link, or `wire: auto`, would help",
        ),
        (
            Limit("source", "a", 0.3),
            {},
            "the source (a is busy 30%); a faster source would get more",
        ),
        (
            Limit("waiting", "a", 0.3),
            {},
            "messages (a is busy 30%); try fewer nodes or a larger `batch`",
        ),
        (Limit("waiting", "a", 0.3), {"order": "strict"}, "`order: pipelined` would help"),
        (
            Limit("node", "a", 0.97),
            {"alone": AloneReport("a", 0.1, 10**8, "`pins` place layers elsewhere")},
            "a (busy 97%); one node alone is faster",
        ),
    ],
)
def test_the_bottleneck_comes_with_what_would_help(
    limit: Limit, changes: dict[str, Any], sentence: str
) -> None:
    usual = replace(metered(), frames=1000, period_measured_s=0.1, period_predicted_s=0.1)
    (line,) = limit_lines(replace(usual, **{"limit": limit, **changes}))
    assert sentence in line
    assert len(line) + 2 * len("pi-kitchen") <= 100, "a terminal of 100 columns does not wrap it"


def test_a_further_line_says_why_the_faster_node_does_not_work_alone() -> None:
    alone = AloneReport("a", 0.1, 10**8, "`pins` place layers elsewhere")
    said = "a alone would make 10 frames/s, but `pins` place layers elsewhere"
    assert said in summary_lines(replace(metered(), alone=alone))


def test_a_limit_is_what_is_busy_or_else_the_source_or_the_waiting() -> None:
    def kind(busy: dict[str, float], frame_s: float, *, is_paced: bool = False) -> str:
        found = limit_of(PLAN, busy, frame_s, is_paced=is_paced)
        assert found is not None
        return found.kind

    sent_s = 1000 / PLAN.devices[0].link_bytes_per_s  # the input's bytes over its link
    assert kind({"a": 0.95}, 1.0) == "node"
    assert kind({"a": 0.5}, 1.0) == "waiting"
    assert kind({"a": 0.5}, 1.0, is_paced=True) == "source"
    assert kind({"a": 0.5}, sent_s / 0.8) == "link"
    assert limit_of(PLAN, {}, 1.0, is_paced=False) is None


def test_long_lists_of_a_plan_are_folded_unless_all_is_wanted() -> None:
    phases = tuple(replace(PHASE, name=f"a/{number}") for number in range(20))
    found = replace(PLAN, phases=phases)
    text = printed(plan_text(found))
    assert "a/11" in text
    assert "a/12" not in text
    assert "and 8 more, with --verbose" in text
    assert "a/19" in printed(plan_text(found, verbose=True))


def test_assumed_watts_are_said_to_be_assumed() -> None:
    text = " ".join(printed(report_text(report(), verbose=True)).split())
    assert "predicted per frame, by assumed watts of all nodes" in text
    assert "assumed" not in printed(report_text(metered(), verbose=True))  # 20 and 5 W


def test_a_disagreement_is_loud() -> None:
    console = Console(file=io.StringIO(), width=110)
    print_report(report(Agreement(math.inf, 0, "y")), console)
    assert isinstance(console.file, io.StringIO)
    assert "DIFFERS from ONNX Runtime" in console.file.getvalue()
    assert "NaN" in console.file.getvalue()


def test_a_plan_is_shown_without_a_run() -> None:
    text = printed(plan_text(PLAN))
    for part in ("a/0", "l1, l2", "1000.0 MB", "none", "20.00 frames/s", "Live: proved."):
        assert part in text, part
    assert {node["name"] for node in plan_as_json(PLAN)["nodes"]} == {"a", "idle"}


def test_a_loss_that_the_run_recovered_from_is_reported_in_both_forms() -> None:
    past = Recovery(("b",), ("node 'b' was lost while running",), 1.25, 2, 3, waited_s=0.75)
    found = make_report(
        PLAN,
        PLAN,
        replace(RESULT, recoveries=(past,)),
        order="pipelined",
        input_description="4 inputs",
        first_result_s=3.5,
        agreement=None,
        accuracy=None,
    )
    (told,) = json.loads(json.dumps(found.as_json()))["recoveries"]
    assert told == {
        "nodes": ["b"],
        "reasons": ["node 'b' was lost while running"],
        "seconds": 1.25,
        "frame": 2,
        "replayed": 3,
        "pause_s": pytest.approx(0.1),
        "cause": "loss",
        "waited_s": 0.75,
    }
    text = " ".join(printed(report_text(found)).split())
    assert "lost b: streaming again after 1.25 s (750.0 ms of it with too few nodes), no" in text
    assert "no result for 100.0 ms, from frame 2 on, 3 sent again" in text
    assert found.nodes[0].busy_s_per_frame == pytest.approx(0.15)  # of the two frames since then


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_stage_is_one_line_and_a_long_one_a_line_a_minute() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineDisplay(stream, clock) as progress:
        progress.say("reading net")
        for done in range(201):
            progress.update("streaming", done, 200, "fast")
        progress.update("streaming", 200, 200, "fast")
        for second in range(120):
            clock.now_s = float(second)
            progress.update("searching", second, 200)
            progress.say("x") if second == 50 else None
        progress.update("comparing", 0, 2, "slowly")
    assert stream.getvalue().splitlines() == [
        "reading net",
        "streaming: 200 of 200, fast",
        "searching: 5 of 200",
        "x",
        "searching: 65 of 200",
        "searching: 119 of 200",
        "comparing: 0 of 2, slowly",
    ]


def test_stages_that_overlap_are_a_line_each() -> None:
    stream = io.StringIO()
    with LineDisplay(stream, Clock()) as progress:
        progress.update("searching", 7, 10)
        for done in range(4):
            progress.update("uploading", done, 3)
            progress.update("loading", done // 2, 2)
        progress.update("loading", 2, 2)
        progress.update("uploading", 0, 2)  # again, after a loss
        progress.update("uploading", 2, 2)
    assert stream.getvalue().splitlines() == [
        "searching: 7 of 10",
        "uploading: 3 of 3",
        "loading: 2 of 2",
        "uploading: 2 of 2",
    ]


def test_a_stage_without_an_end_is_a_line_at_once_and_a_minute() -> None:
    stream, clock = io.StringIO(), Clock()
    with LineDisplay(stream, clock) as progress:
        for second in range(100):
            clock.now_s = float(second)
            progress.update("streaming", second, None)
    assert stream.getvalue().splitlines() == ["streaming: 0", "streaming: 60"]


def test_how_much_longer_a_run_waits_is_reported_with_the_stage() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineDisplay(stream, clock)
    for passed_s in (1, 20):
        clock.now_s = float(passed_s)
        show_update(progress, Update("waiting for any node (s)", passed_s, 180, "2 min 40 s left"))
    assert stream.getvalue() == "waiting for any node (s): 20 of 180, 2 min 40 s left\n"


def test_a_stage_without_work_is_one_line() -> None:
    stream = io.StringIO()
    LineDisplay(stream).update("loading", 0, 0)
    assert stream.getvalue() == "loading: 0 of 0\n"


def test_the_bar_takes_what_the_lines_take() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with BarDisplay(console) as progress:
        progress.say("reading [net]")
        progress.update("searching [a]", 1, 2, "best [b]")
        progress.update("streaming", 1, 2)
        progress.say("done")
    assert isinstance(console.file, io.StringIO)
    assert "reading [net]" in console.file.getvalue()
    assert "done" in console.file.getvalue()


def test_joules_per_frame_are_shown_measured_and_predicted() -> None:
    found = metered()
    one, other = found.nodes
    assert one.joules_per_frame == other.joules_per_frame == pytest.approx(12.0 / 4)
    assert one.watts == pytest.approx(12.0 / 0.6)
    assert found.joules_per_frame == pytest.approx(6.0)
    # Each is busy for 50 ms of the period, and waits for the rest of it.
    waits_s = found.period_predicted_s - 0.05
    assert one.joules_per_frame_predicted == pytest.approx(20 * 0.05 + 5 * waits_s, rel=0.05)
    text = printed(report_text(found, verbose=True))
    assert "energy: 6.00 J per frame measured (40.0 W)" in text
    assert "a: 3.00 J per frame (20.0 W) by RAPL of a" in text


def test_nodes_of_one_machine_share_its_joules_by_their_processor_time() -> None:
    found = metered(cpu_s=(0.3, 0.1), machines={"a": "", "b": ""})
    assert [node.joules_per_frame for node in found.nodes] == pytest.approx([2.25, 0.75])
    assert found.joules_per_frame == pytest.approx(12.0 / 4), "the machine's joules count once"


def test_nodes_whose_machine_is_unknown_share_nothing() -> None:
    found = metered(cpu_s=(0.3, 0.1), machines={"a": None, "b": None})
    assert [node.joules_per_frame for node in found.nodes] == pytest.approx([3.0, 3.0])


def test_what_one_node_did_not_measure_is_neither_a_number_nor_part_of_a_sum() -> None:
    found = metered(energy_j=(12.0, None))
    data = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert data["joules_per_frame"] is None
    assert [node["joules_per_frame"] for node in data["nodes"]] == [pytest.approx(3.0), None]
    assert all(node["joules_per_frame_predicted"] > 0 for node in data["nodes"])
    text = printed(report_text(found, verbose=True))
    assert "measured (" not in text
    assert "a: 3.00 J per frame (20.0 W) by RAPL of a" in text
    assert "not measured on b: its meter could not be read all the time" in text


def test_an_unused_node_takes_no_energy() -> None:
    assert report().nodes[1].joules_per_frame_predicted == 0.0


def test_a_plan_has_its_predicted_joules_and_power() -> None:
    data = plan_as_json(PLAN)
    assert data["watts_predicted"] == pytest.approx(data["joules_per_frame_predicted"] / 0.05)
    used, idle = data["nodes"]
    assert used["joules_per_frame"] is None
    assert used["joules_per_frame_predicted"] == data["joules_per_frame_predicted"] > 0
    assert idle["joules_per_frame_predicted"] == 0.0
    assert "mJ per frame, " in printed(plan_text(PLAN))
