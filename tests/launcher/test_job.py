"""From `cluster.yaml` to a report, with the subnets run in this process instead of by agents."""

from __future__ import annotations

import errno
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from launcher.errors import BadInputError, RunFailedError
from launcher.results.sentences import report_lines
from launcher.run.request import Request
from launcher.run.runtime import RunResult
from launcher.streaming.job import Outcome
from tests.launcher.in_process import Disturb, InProcess
from tests.launcher.launches import launched, reported
from tests.launcher.models import DIGITS, write_branches

KEYS = {
    "frames", "seconds", "frames_per_second", "period_predicted_s", "period_measured_s",
    "latency_s", "max_relative_error", "bytes_per_frame", "nodes",
}  # fmt: skip
NODE_KEYS = {
    "name", "layers", "phases", "memory_predicted_bytes", "memory_eq2_bytes",
    "memory_measured_bytes", "busy_fraction",
}  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two nodes with a layer at least, a network of two inputs and two outputs, random frames."""
    write_branches(tmp_path / "branches.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\nframes: 5\n"
        "pins: {stem: a, head: b}\n"
    )
    return path


def run(request: Request, nodes: InProcess | None = None) -> tuple[Outcome, str]:
    """The outcome, and what was said meanwhile."""
    said = io.StringIO()
    return launched(request, nodes, said), said.getvalue()


def error_of(disturb: Disturb, cluster: Path) -> float:
    report = reported(Request(cluster), InProcess(disturb))
    assert report.agreement is not None
    return report.agreement.max_relative_error


def test_a_run_agrees_with_the_whole_model_and_says_everything(cluster: Path) -> None:
    outcome, said = run(Request(cluster))
    report = outcome.report
    assert report is not None
    assert report.agrees
    data = report.as_json()
    assert data.keys() >= KEYS
    assert data["frames"] == 5
    assert data["max_relative_error"] <= 1e-5
    assert [node["name"] for node in data["nodes"]] == ["a", "b"]
    assert all(node.keys() >= NODE_KEYS for node in data["nodes"])
    assert all(node["layers"] for node in data["nodes"])
    assert sum(node["layers"] for node in data["nodes"]) == len(outcome.plan.assignment)
    assert "Live" in report.proof
    for stage in ("reading branches.onnx", "searching (sequential)", "cutting subnets",
                  "streaming: 5 of 5", "comparing with the whole model: 5 of 5"):  # fmt: skip
        assert stage in said


def test_a_report_says_what_one_node_alone_would_do_and_why_others_are_used(cluster: Path) -> None:
    report = reported(Request(cluster, verify=False))
    assert report.alone is not None
    assert report.alone.node in "ab"
    (line,) = (line for line in report_lines(report) if "alone would make" in line)
    assert "`pins` place layers elsewhere" in line


def test_the_predicted_period_comes_from_the_warm_up(cluster: Path) -> None:
    report = reported(Request(cluster, verify=False))
    busiest = max(node.phases for node in report.nodes) * 0.001
    assert report.period_predicted_s >= busiest
    assert report.period_predicted_s != report.period_planned_s


def test_a_run_that_ends_while_nothing_is_deployed_has_a_report(cluster: Path) -> None:
    """A node was lost after the last result had arrived: there are no times and statistics."""
    complete = InProcess()

    class Undeployed(InProcess):
        def run(self, *given: Any) -> RunResult:
            result = complete.run(*given)
            return replace(result, stats={}, warmup_s={}, idle_rss_bytes={})

    report = reported(Request(cluster, verify=False), Undeployed())
    assert report.as_json()["frames"] == 5


def test_a_wrong_number_in_one_frame_is_found(cluster: Path) -> None:
    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        if frame == 3:
            outputs["score"] = outputs["score"] * 1.01

    assert error_of(spoil, cluster) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.slow
def test_a_wrong_number_in_a_repeat_is_found(cluster: Path) -> None:
    cluster.write_text(cluster.read_text().replace("frames: 5", "frames: 40"))

    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        if frame == 39:
            outputs["aux/map"] = outputs["aux/map"] * 1.01

    assert error_of(spoil, cluster) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.slow
def test_swapped_frames_are_found(cluster: Path) -> None:
    kept: list[np.ndarray] = []

    def swap(frame: int, outputs: dict[str, np.ndarray]) -> None:
        kept.append(outputs["score"])
        outputs["score"] = kept[max(0, frame - 1)]

    assert error_of(swap, cluster) > 1e-4


def test_without_comparison_there_is_no_error_to_tell(cluster: Path) -> None:
    report = reported(Request(cluster, verify=False))
    assert report.agreement is None
    assert report.as_json()["max_relative_error"] is None
    assert report.as_json()["verified"] is False


def test_what_the_command_line_says_comes_first(cluster: Path) -> None:
    runtime = InProcess()
    outcome, _ = run(Request(cluster, frames=3, order="strict", verify=False), runtime)
    assert outcome.report is not None
    assert outcome.report.frames == 3
    assert outcome.report.order == "strict"
    assert runtime.options.run.order == "strict"


def test_outputs_are_written_frame_by_frame(cluster: Path, tmp_path: Path) -> None:
    run(Request(cluster, output=tmp_path / "out", verify=False))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == sorted(f"{i:06d}.{name}.npy" for i in range(5) for name in ("score", "aux_map"))
    assert np.load(tmp_path / "out" / "000002.score.npy").shape == (1, 4)


@pytest.mark.slow
def test_the_digits_are_classified_as_well_as_by_the_whole_model(tmp_path: Path) -> None:
    outcome, _ = run(Request(DIGITS / "cluster.yaml", strategy="sequential", output=tmp_path))
    report = outcome.report
    assert report is not None
    assert report.frames == 360
    assert report.accuracy is not None
    assert report.accuracy.distributed == report.accuracy.whole_model
    assert report.accuracy.distributed > 0.95
    lines = (tmp_path / "classes.csv").read_text().splitlines()
    assert lines[0] == "frame,input,rank,class,probability,name"
    assert len(lines) == 1 + 360 * 5


def test_accuracy_counts_every_streamed_frame() -> None:
    request = Request(DIGITS / "cluster.yaml", strategy="sequential", frames=7, verify=False)
    report = reported(request)
    assert report.accuracy is not None
    assert report.accuracy.distributed in {right / 7 for right in range(8)}
    assert report.accuracy.whole_model is None


def test_other_input_has_no_truth(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (9, 9), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    outcome, _ = run(
        Request(
            DIGITS / "cluster.yaml", strategy="sequential", inputs=(str(tmp_path / "*.png"),),
            frames=2, verify=False,
        )
    )  # fmt: skip
    assert outcome.report is not None
    assert outcome.report.accuracy is None
    assert outcome.report.frames == 2


def refused(request: Request) -> str:
    """The sentence; no runtime may have been started."""
    runtime = InProcess()
    with pytest.raises(BadInputError) as caught:
        run(request, runtime)
    assert not runtime.plans
    return str(caught.value)


def change(cluster: Path, old: str, new: str) -> None:
    text = cluster.read_text()
    assert old in text
    cluster.write_text(text.replace(old, new))


PINS = "{stem: a, head: b}"


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        (
            "sequential",
            "sequental",
            ("line 5, strategy: unknown strategy 'sequental'; did you mean 'sequential'?",),
        ),
        (
            PINS,
            "{stm: b}",
            ("line 7, pins.stm: no layer of branches is called 'stm'", "did you mean 'stem'?"),
        ),
        (PINS, "{'st*': a, '*em': b}", ("layer 'stem' to 'b', but 'st*' pins it to 'a'",)),
        (
            "- name: a\n  - name: b",
            "- {name: a, memory: 10MB}\n  - {name: b, memory: 10MB}",
            ("10.0 MB", "raise its memory"),
        ),
    ],
)
def test_what_no_plan_is_possible_for_is_refused(
    cluster: Path, old: str, new: str, sentences: tuple[str, ...]
) -> None:
    change(cluster, old, new)
    said = refused(Request(cluster))
    assert all(sentence in said for sentence in sentences)


def test_a_strategy_of_the_command_line_is_not_called_one_of_the_file(cluster: Path) -> None:
    sentence = refused(Request(cluster, strategy="sequental"))
    assert sentence.startswith("--strategy: unknown strategy 'sequental'; did you mean ")


def test_a_model_that_is_none_is_refused(cluster: Path) -> None:
    (cluster.parent / "branches.onnx").write_bytes(b"\x00\x01 no model")
    assert "cluster.yaml, line 1, model: " in refused(Request(cluster))
    assert "branches.onnx" in refused(Request(cluster))


def test_an_image_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_text("no image")
    sentence = refused(Request(DIGITS / "cluster.yaml", inputs=[str(tmp_path / "bad.png")]))
    assert "bad.png: cannot be read as an image" in sentence


def test_input_from_the_command_line_must_be_there(cluster: Path) -> None:
    assert "--input: no file matches" in refused(Request(cluster, inputs=["none/*.png"]))


def test_labels_are_for_classifiers(cluster: Path) -> None:
    (cluster.parent / "labels.txt").write_text("cat\n")
    cluster.write_text(cluster.read_text() + "labels: labels.txt\n")
    assert "line 8, labels: needs a classifier, but branches has" in refused(Request(cluster))


def test_pins_hold_and_globs_match_layers(cluster: Path) -> None:
    change(cluster, PINS, "{stem: b, 'left*': b}")
    plan = run(Request(cluster, plan_only=True))[0].plan
    assert plan.assignment["stem"] == "b"
    assert plan.assignment["left"] == "b"


def test_an_exact_pin_beats_a_glob(cluster: Path) -> None:
    change(cluster, PINS, "{stem: b, 's*': a, left: b, right: b}")
    assert run(Request(cluster, plan_only=True))[0].plan.assignment["stem"] == "b"


def test_a_folder_without_plan_or_cluster_is_refused(tmp_path: Path) -> None:
    assert "neither a plan.json nor a cluster.yaml" in refused(Request(tmp_path))


def test_a_disk_that_takes_no_more_is_a_sentence(cluster: Path) -> None:
    def fill(frame: int, outputs: dict[str, np.ndarray]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/first/000001.npz")

    with pytest.raises(RunFailedError, match=r"000001\.npz: No space left on device"):
        run(Request(cluster), InProcess(fill))
