"""A source with a pace of its own, from `cluster.yaml` to the report."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from launcher.core.intake import Pace
from launcher.errors import BadInputError
from launcher.progress import LineProgress
from launcher.results.report import Report
from launcher.results.report_text import print_report
from launcher.run.job import launch
from launcher.run.request import Request
from launcher.run.runtime import RunResult
from tests.launcher.in_process import InProcess
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


class Chosen:
    """Some of the frames."""

    def __init__(self, frames: Any, numbers: list[int]) -> None:
        self.frames, self.numbers = frames, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        return self.frames[self.numbers[index]]


class Camera(InProcess):
    """Drops these frames of those that it is to stream."""

    def __init__(self, dropped: set[int]) -> None:
        super().__init__()
        self.dropped = dropped

    def run(self, plan, nodes, subnets, frames, on_result, on_update, options) -> RunResult:
        left = [number for number in range(len(frames)) if number not in self.dropped]
        for number in sorted(self.dropped):
            options.on_drop(number)

        def renumbered(index: int, outputs: Any) -> None:
            on_result(left[index], outputs)

        chosen = Chosen(frames, left)
        return super().run(plan, nodes, subnets, chosen, renumbered, on_update, options)


def run(request: Request, nodes: InProcess) -> Report:
    with LineProgress(sys.stderr) as progress:
        outcome = launch(request, progress, started_s=time.monotonic(), runtime=nodes.runtime)
    assert outcome.report is not None
    return outcome.report


def told(report: Report) -> str:
    text = io.StringIO()
    print_report(report, Console(file=text, width=200))
    return text.getvalue()


def test_drops_are_counted_told_and_journalled_and_results_keep_their_numbers(
    cluster: Path,
) -> None:
    """Frame 3 is the only one of its input: it has no result, and nothing to be compared with."""
    output = cluster.parent / "out"
    camera = Camera({3, 5, 6, 7, 19})
    report = run(Request(cluster, output=output, journal=cluster.parent / "kept"), camera)
    assert camera.options.pace == Pace(25.0, "drop-newest", 2)
    assert report.frames == 15
    assert report.agrees
    told_in_json = report.as_json()["pace"]
    assert told_in_json["dropped"] == 5
    assert told_in_json["dropped_frames"] == ((3, 3), (5, 7), (19, 19))
    assert "25 frames/s; 5 of 20 were dropped (drop-newest, 2 may wait): 3, 5–7, 19" in told(report)
    written = sorted(int(path.name[:6]) for path in output.glob("*.score.npy"))
    assert written == [frame for frame in range(20) if frame not in camera.dropped]
    rows = np.load(cluster.parent / "kept" / "score.npy")
    np.testing.assert_array_equal(rows[18], np.load(output / "000018.score.npy"))
    np.testing.assert_array_equal(rows[18], rows[2])
    again = launch(
        Request(cluster, journal=cluster.parent / "kept", resume=True),
        LineProgress(io.StringIO()),
        started_s=time.monotonic(),
        runtime=Camera(set()).runtime,
    )
    assert again.complete is not None
    assert again.complete.as_json()["dropped_frames"] == ((3, 3), (5, 7), (19, 19))


def test_a_source_that_waits_drops_nothing_and_says_so(cluster: Path) -> None:
    cluster.write_text(TEXT.replace("drop-newest", "block"))
    report = run(Request(cluster), InProcess())
    assert report.as_json()["pace"]["dropped"] == 0
    assert "25 frames/s at most, and paused while 2 frames waited; none dropped" in told(report)


@pytest.mark.parametrize("key", ["on_overload: drop-oldest", "queue_frames: 3"])
def test_what_belongs_to_a_pace_needs_one(cluster: Path, key: str) -> None:
    kept = [line for line in TEXT.splitlines() if line.split(":")[0] not in ("rate", "on_overload")]
    kept = [line for line in kept if not line.startswith("queue")]
    cluster.write_text("\n".join([*kept, key]) + "\n")
    with pytest.raises(BadInputError, match=r"line \d+, \w+: has no effect without `rate`"):
        run(Request(cluster), InProcess())


@pytest.mark.slow
def test_real_agents_that_are_too_slow_for_the_source(cluster: Path, monkeypatch: Any) -> None:
    """Ten thousand frames a second are more than messages between processes can carry here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cluster.parent / "cache"))
    cluster.write_text(TEXT.replace("rate: 25", "rate: 10000").replace("s: 20", "s: 800"))
    with LineProgress(io.StringIO()) as progress:
        report = launch(Request(cluster), progress, started_s=time.monotonic()).report
    assert report is not None
    assert report.agrees
    assert report.pace is not None
    assert report.pace.dropped > 0
    assert report.frames + report.pace.dropped == 800
