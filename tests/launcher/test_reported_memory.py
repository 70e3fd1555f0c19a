"""Nodes without `memory` may hold what their agents report as available, and users learn of it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from launcher.config.load import load_cluster
from launcher.config.node import NodeConfig
from launcher.core.roll import Greeted, Roll
from launcher.errors import BadInputError
from launcher.plan.reported_memory import reported_limits
from launcher.run.request import Request
from launcher.run.runtime import Node, RunResult
from launcher.streaming.job import Outcome
from nodes.protocol.messages import PROTOCOL, Welcome
from partition.pricing.memory_budget import CODE_BYTES
from tests.launcher.in_process import InProcess
from tests.launcher.launches import launched
from tests.launcher.models import write_classifier

MB = 1_000_000
IDLE = 30 * MB


def welcome(available_bytes: int | None) -> Welcome:
    return Welcome(
        PROTOCOL, "n", "0", "tcp://x:2", "none", "sim", 1, IDLE, available_bytes=available_bytes
    )


@dataclass
class Reporting:
    """Runs plans in this process, on nodes whose agents report this much memory."""

    available: Mapping[str, int]
    inner: InProcess = field(default_factory=InProcess)

    @contextmanager
    def runtime(self, nodes: tuple[Node, ...]) -> Iterator[Reporting]:
        yield self

    def __call__(self, *given: Any) -> RunResult:
        return self.inner.run(*given)

    def call_roll(self, nodes: tuple[Node, ...], *_: object) -> Roll:
        found = {node.name: welcome(self.available.get(node.name)) for node in nodes}
        return Roll({name: Greeted(welcome=each) for name, each in found.items()})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    write_classifier(folder / "net.onnx")
    path = folder / "cluster.yaml"
    path.write_text(
        "model: net.onnx\nnodes: [{name: a}, {name: b}, {name: c, standby: true}]\n"
        "strategy: sequential\nframes: 2\npins: {layer0: a, layer9: b}\n"
    )
    return path


def run(request: Request, a: int, b: int) -> tuple[Outcome, str]:
    """The outcome with these megabytes available to the nodes, and what was said meanwhile."""
    said = io.StringIO()
    return launched(request, Reporting({"a": a * MB, "b": b * MB}), said), said.getvalue()


def needs(outcome: Outcome) -> dict[str, int]:
    assert outcome.plan is not None
    return {name: memory.total_bytes for name, memory in outcome.plan.memory.items()}


def test_a_plan_that_fits_is_the_one_that_plan_only_prints(cluster: Path) -> None:
    outcome, said = run(Request(cluster), 2000, 2000)
    planned, unsaid = run(Request(cluster, plan_only=True), 0, 0)
    assert outcome.plan is not None
    assert planned.plan is not None
    assert outcome.plan.assignment == planned.plan.assignment
    assert "available to nodes without `memory`, as their agents report: a 1038.0 MB" in said
    assert "agents report" not in unsaid


def test_a_plan_that_does_not_fit_is_made_again_and_the_report_says_why(
    cluster: Path, tmp_path: Path
) -> None:
    before = needs(run(Request(cluster, plan_only=True), 0, 0)[0])
    fuller = max(before, key=before.__getitem__)
    least = (before[fuller] - IDLE - CODE_BYTES) // MB - 2
    given = {name: 4000 if name != fuller else 2 * least for name in before}
    outcome, said = run(Request(cluster, save=tmp_path / "plan"), **given)
    assert needs(outcome)[fuller] <= least * MB + IDLE + CODE_BYTES < before[fuller]
    assert f"on {fuller}, so another one is made" in said
    assert outcome.report is not None
    assert f"{fuller} {least + 38}.0 MB" in outcome.report.explanation
    assert outcome.report.agrees
    saved = load_cluster(tmp_path / "plan" / "cluster.yaml").config.nodes
    assert [node.memory for node in saved] == [None, None, None]


def test_a_node_without_room_for_an_engine_is_named_and_gets_nothing(tmp_path: Path) -> None:
    write_classifier(tmp_path / "net.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text("model: net.onnx\nnodes: [{name: a}, {name: b}]\nframes: 2\n")
    outcome, said = run(Request(path, strategy="sequential"), 4000, 10)
    sentence = "node 'b' is too full to be used: its agent reports"
    assert sentence in said
    assert outcome.report is not None
    (absence,) = outcome.report.absences
    assert absence.reason.startswith(sentence)
    assert set(outcome.report.as_json()["absences"][0]) == {"node", "reason", "came_s"}


def test_where_nothing_fits_the_sentence_says_where_the_limits_come_from(cluster: Path) -> None:
    with pytest.raises(BadInputError) as refused:
        run(Request(cluster), 40, 40)
    assert "a, b: without `memory` in cluster.yaml, a node may hold what its agent" in str(
        refused.value
    )


def test_agents_of_one_machine_share_what_is_available_there() -> None:
    nodes = (
        NodeConfig(name="a"),
        NodeConfig(name="b"),
        NodeConfig(name="fixed", memory=138 * MB),
        NodeConfig(name="spare", standby=True),
        NodeConfig(name="far", address="tcp://192.0.2.7:5500"),
        NodeConfig(name="silent", address="tcp://192.0.2.8:5500"),
        NodeConfig(name="unknown", address="tcp://192.0.2.9:5500"),
    )
    found = {"a": 500, "b": 500, "fixed": 500, "far": 700, "unknown": None}
    welcomes = {name: welcome(None if size is None else size * MB) for name, size in found.items()}
    assert reported_limits(nodes, welcomes) == {
        "a": 238 * MB,  # half of what the node with 138 MB, of which it holds 38, leaves of 500
        "b": 238 * MB,
        "far": 738 * MB,
    }
