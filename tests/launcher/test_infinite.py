"""Results with NaN or infinity are reported, and are legal if the whole model has them too."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from launcher.results.report import Report
from launcher.results.report_text import print_report
from launcher.run.request import Request
from tests.launcher.in_process import InProcess
from tests.launcher.launches import reported
from tests.launcher.models import write_branches


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Frame 1 has an infinite pixel; the other three are numbers."""
    write_branches(tmp_path / "branches.onnx")
    images = np.ones((4, 1, 3, 8, 8), np.float32)
    images[1, 0, 0, 3, 3] = np.inf
    np.savez(tmp_path / "frames.npz", image=images, shift=np.ones((4, 1, 4, 8, 8), np.float32))
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nstrategy: sequential\n"
        "pins: {stem: a, head: b}\ninput: frames.npz\nframes: 8\n"
    )
    return path


def run(cluster: Path, nodes: InProcess, *, verify: bool = True) -> tuple[Report, str]:
    report, text = reported(Request(cluster, verify=verify), nodes), io.StringIO()
    print_report(report, Console(file=text, width=300))
    return report, text.getvalue()


def test_what_the_whole_model_makes_too_is_legal_and_reported(cluster: Path) -> None:
    report, text = run(cluster, InProcess())
    assert report.agrees
    assert report.as_json()["infinite"]["results"] == 2
    assert "2 results contain NaN or infinity, the first is frame 1" in text
    assert "those of the whole model do" in text


def test_what_only_a_node_makes_is_a_failure_and_says_how_to_find_it(cluster: Path) -> None:
    def spoil(frame: int, outputs: dict[str, np.ndarray]) -> None:
        if frame == 2:
            outputs["score"] = outputs["score"] * np.nan

    report, text = run(cluster, InProcess(spoil))
    assert not report.agrees
    assert (report.worst_frame, report.worst_output) == (2, "score")
    assert "3 results contain NaN or infinity" in text
    assert "`check: phases` names the phase" in text
    unsure = run(cluster, InProcess(spoil), verify=False)[1]
    assert "they were not compared" in unsure


def test_nobody_looks_if_the_user_does_not_want_it(cluster: Path) -> None:
    cluster.write_text(cluster.read_text() + "check: none\n")
    nodes = InProcess()
    report, text = run(cluster, nodes)
    assert report.as_json()["infinite"] is None
    assert "NaN" not in text
    assert not nodes.options.check_phases


def test_nodes_look_at_each_phase_if_the_user_wants_it(cluster: Path) -> None:
    cluster.write_text(cluster.read_text() + "check: phases\n")
    nodes = InProcess()
    run(cluster, nodes)
    assert nodes.options.check_phases
