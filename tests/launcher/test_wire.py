"""Encoded tensors between real agents: the deviation is bounded, stated and allowed by the user."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from launcher.errors import BadInputError
from launcher.plan.files import PLAN, read_plan
from launcher.results.report import Report
from launcher.results.report_text import print_report
from launcher.run.request import Request
from nodes.execution.encoding import HAS_ZSTANDARD
from tests.launcher.launches import AGENTS, launched, reported
from tests.launcher_runtime.clusters import write_network

needs_zstandard = pytest.mark.skipif(not HAS_ZSTANDARD, reason="zstandard is not installed")

BYTES = 8 * 16 * 16 * 4
"""Of a tensor between two nodes."""


def cluster_file(folder: Path, keys: str, *nodes: str) -> Path:
    """Eight convolutions on the nodes a, b and c, whose further keys are in `nodes`."""
    model = write_network(folder / "small.onnx")
    pins = {f"[cr]{layer}": "abc"[layer // 3] for layer in range(8)}
    listed = [f"  - name: {name}" for name in "abc"]
    for number, own in enumerate(nodes):
        listed[number] += f"\n    {own}" if own else ""
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: {model}\nnodes:\n" + "\n".join(listed) + "\ninsecure: true\n"
        f"strategy: sequential\nframes: 12\npins: {json.dumps(pins)}\n{keys}\n"
    )
    return path


def run(folder: Path, keys: str, *nodes: str) -> Report:
    return reported(Request(cluster_file(folder, keys, *nodes)), AGENTS)


def text_of(report: Report) -> str:
    console = Console(file=StringIO(), width=400)
    print_report(report, console, verbose=True)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wire", "least", "most", "share"),
    [
        ("fp16", 1e-7, 2e-3, 0.5),
        ("bf16", 1e-6, 2e-2, 0.5),
        ("int8", 1e-6, 5e-2, 0.26),
        pytest.param("lossless", 0.0, 1e-6, 0.9, marks=needs_zstandard),
    ],
)
def test_three_agents_send_fewer_bytes_and_the_report_states_the_deviation(
    tmp_path: Path, wire: str, least: float, most: float, share: float
) -> None:
    tolerance = "" if wire == "lossless" else f"tolerance: {most}"
    report = run(tmp_path, f"wire: {wire}\n{tolerance}")
    assert report.agreement is not None
    assert report.agrees
    assert least <= report.agreement.max_relative_error <= most
    assert report.agreement.rule == ("precision" if wire == "lossless" else "given")
    assert report.wire is not None
    (encoding,) = report.wire.channels
    assert encoding == wire
    sent = {node.name: node.sent_bytes / report.frames for node in report.nodes}
    assert 0 < sent["b"] <= share * BYTES
    said = " ".join(text_of(report).split())
    assert f"as {wire})" in said
    if wire == "lossless":
        assert "nothing is lost" in said
    else:
        assert f"`tolerance` allows {most:.0e}" in said
        assert f"by {report.agreement.max_relative_error:.1e} at most" in said


@pytest.mark.slow
def test_a_deviation_beyond_the_tolerance_ends_with_what_caused_it(tmp_path: Path) -> None:
    report = run(tmp_path, "wire: int8\ntolerance: 0.0000001")
    assert report.agreement is not None
    assert not report.agrees
    assert report.agreement.begins is not None
    assert "encoded as int8" in report.agreement.begins.sentence
    assert "choose a more precise `wire`" in text_of(report)


@pytest.mark.slow
def test_one_nodes_link_may_carry_its_tensors_encoded(tmp_path: Path) -> None:
    report = run(tmp_path, "tolerance: 0.002", "", "", "wire: fp16")
    assert report.wire is not None
    sent = {node.name: node.sent_bytes / report.frames for node in report.nodes}
    assert sent["a"] == BYTES + BYTES / 2, "to b as it is, the skip connection to c in half"
    assert sent["b"] == BYTES / 2
    assert report.agrees


@pytest.mark.parametrize(
    ("keys", "node", "where"), [("wire: fp16", "", "wire"), ("", "wire: int8", "nodes[1].wire")]
)
def test_what_changes_results_needs_a_tolerance(
    tmp_path: Path, keys: str, node: str, where: str
) -> None:
    with pytest.raises(BadInputError, match="changes results: give the largest relative") as found:
        run(tmp_path, keys, "", node)
    assert where in str(found.value)


def test_an_unknown_encoding_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="must be 'fp32', 'fp16', 'bf16', 'int8', 'lossless'"):
        run(tmp_path, "wire: fp8")


def test_a_saved_plan_follows_the_cluster_next_to_it(tmp_path: Path) -> None:
    request = Request(
        cluster_file(tmp_path, "wire: fp16\ntolerance: 0.002"),
        plan_only=True,
        save=tmp_path / "plan",
    )
    planned = launched(request, AGENTS).plan
    loaded = launched(Request(tmp_path / "plan", plan_only=True), AGENTS).plan
    assert planned is not None
    assert loaded is not None
    assert loaded.channels == planned.channels
    data = json.loads((tmp_path / "plan" / PLAN).read_text())
    assert {each["encoding"] for each in data["derived"]["channels"]} == {"raw", "fp16"}


def test_a_plan_that_was_saved_before_there_were_encodings_has_raw_channels(
    tmp_path: Path,
) -> None:
    request = Request(cluster_file(tmp_path, ""), plan_only=True, save=tmp_path / "plan")
    launched(request, AGENTS)
    file = tmp_path / "plan" / PLAN
    data = json.loads(file.read_text())
    for each in data["derived"]["channels"]:
        del each["encoding"], each["wire_bytes"]
    file.write_text(json.dumps(data, indent=1))
    assert not read_plan(tmp_path / "plan").edited
    loaded = launched(Request(tmp_path / "plan", plan_only=True), AGENTS).plan
    assert loaded is not None
    assert {channel.encoding for channel in loaded.channels} == {"raw"}
