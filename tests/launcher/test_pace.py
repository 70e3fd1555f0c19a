"""A source with its own pace, from `cluster.yaml` to the report."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from launcher.errors import BadInputError
from launcher.inputs.frames import Inputs
from launcher.results.report import PaceReport, Report
from launcher.results.report_text import print_report
from launcher.run.request import Request
from launcher.run.runtime import Frame, RunResult
from tests.launcher.in_process import InProcess
from tests.launcher.launches import AGENTS, launched, reported
from tests.launcher.models import write_branches

TEXT = (
    "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\n"
    "frames: 20\npins: {stem: a, head: b}\nrate: 25\non_overload: drop-newest\nqueue_frames: 2\n"
)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_branches(tmp_path / "branches.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT)
    return path


class Camera(InProcess):
    """Computes the first frame when the source has made all others: there is room for a few."""

    def run(self, plan, nodes, subnets, networks, on_update, options) -> RunResult:
        took = networks[0].took

        def late(index: int, outputs: Any) -> None:
            for thread in threading.enumerate():
                if thread.name == "csdf-edge reader":
                    thread.join()
            took(index, outputs)

        networks[0].took = late
        return super().run(plan, nodes, subnets, networks, on_update, options)


def told(report: Report) -> str:
    text = io.StringIO()
    print_report(report, Console(file=text, width=200))
    return text.getvalue()


def ranges(frames: list[int]) -> tuple[tuple[int, int], ...]:
    """Rows of frames that follow each other: their first and last."""
    return tuple(
        (first, next(last for last in range(first, 99) if last + 1 not in frames))
        for first in frames
        if first - 1 not in frames
    )


def in_words(frames: list[int]) -> str:
    return ", ".join(f"{a}" if a == b else f"{a}–{b}" for a, b in ranges(frames))


@pytest.mark.parametrize("policy", ["drop-newest", "drop-oldest"])
def test_drops_are_counted_reported_and_journalled_and_results_keep_their_numbers(
    cluster: Path, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input whose frames are all dropped has no result, and nothing to be compared with."""
    read, by = Inputs.__getitem__, list[str]()

    def noted(self: Inputs, index: int) -> Frame:
        by.append(threading.current_thread().name)
        return read(self, index)

    monkeypatch.setattr(Inputs, "__getitem__", noted)
    cluster.write_text(TEXT.replace("drop-newest", policy).replace("rate: 25", "rate: 5000"))
    output = cluster.parent / "out"
    report = reported(Request(cluster, output=output, journal=cluster.parent / "kept"), Camera())
    assert report.agrees
    written = sorted(int(path.name[:6]) for path in output.glob("*.score.npy"))
    dropped = [frame for frame in range(20) if frame not in written]
    assert len(dropped) >= 12, "two wait, and few are under way"
    assert report.frames == len(written)
    assert by.count("csdf-edge frames") == len(written), "what is dropped is not decoded"
    assert "csdf-edge reader" not in by
    assert report.pace == PaceReport(5000, policy, 2, len(dropped), ranges(dropped))
    words = f"{len(dropped)} of 20 were dropped ({policy}, 2 may wait): {in_words(dropped)}"
    assert f"5000 frames/s; {words}" in told(report)
    rows = np.load(cluster.parent / "kept" / "score.npy")
    for frame in written:
        np.testing.assert_array_equal(rows[frame], np.load(output / f"{frame:06}.score.npy"))
    again = launched(Request(cluster, journal=cluster.parent / "kept", resume=True))
    assert again.complete is not None
    assert again.complete.as_json()["dropped_frames"] == ranges(dropped)


def test_the_nodes_are_not_blamed_for_the_pace_of_the_source(cluster: Path) -> None:
    nodes = InProcess()
    reported(Request(cluster), nodes)
    assert nodes.options.source_period_s == 1 / 25


def test_a_source_that_waits_drops_nothing_and_says_so(cluster: Path) -> None:
    cluster.write_text(TEXT.replace("drop-newest", "block").replace("rate: 25", "rate: 500"))
    report = reported(Request(cluster), InProcess())
    assert report.as_json()["pace"]["dropped"] == 0
    assert "500 frames/s at most, and paused while 2 frames waited; none dropped" in told(report)


@pytest.mark.parametrize("key", ["on_overload: drop-oldest", "queue_frames: 3"])
def test_what_belongs_to_a_pace_needs_one(cluster: Path, key: str) -> None:
    kept = [line for line in TEXT.splitlines() if line.split(":")[0] not in ("rate", "on_overload")]
    kept = [line for line in kept if not line.startswith("queue")]
    cluster.write_text("\n".join([*kept, key]) + "\n")
    with pytest.raises(BadInputError, match=r"line \d+, \w+: has no effect without `rate`"):
        reported(Request(cluster), InProcess())


@pytest.mark.slow
def test_real_agents_that_are_too_slow_for_the_source(cluster: Path, monkeypatch: Any) -> None:
    """Ten thousand frames a second are more than messages between processes can carry here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cluster.parent / "cache"))
    cluster.write_text(TEXT.replace("rate: 25", "rate: 10000").replace("s: 20", "s: 800"))
    report = reported(Request(cluster), AGENTS)
    assert report.agrees
    assert report.pace is not None
    assert report.pace.dropped > 0
    assert report.frames + report.pace.dropped == 800
