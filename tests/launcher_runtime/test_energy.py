"""Energy from agents' meters to profile, plan and report, with agents that take ten watts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from launcher.commands.launch import main as launch
from launcher.commands.partition import main as partition
from tests.launcher.launches import done, ended
from tests.launcher.models import write_classifier
from tests.nodes.speaker import AgentProcess

pytestmark = pytest.mark.slow

PLUGIN = """
class TenWatts:
    description, period_s = "ten watts", 0.1

    def read_j(self, now_s):
        return 10 * now_s

    def close(self):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    information = tmp_path / "plugin" / "ten-1.dist-info"
    information.mkdir(parents=True)
    (tmp_path / "plugin" / "ten.py").write_text(PLUGIN)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ten\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[csdf_edge.meters]\nten = ten:TenWatts\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plugin"))
    write_classifier(tmp_path / "classifier.onnx")
    return tmp_path


@pytest.fixture
def addresses(folder: Path) -> Iterator[list[str]]:
    """Where two agents of this machine listen, one of which has a meter."""
    agents = [
        AgentProcess(folder / "a", "--name", "a", "--meter", "ten", parent=False),
        AgentProcess(folder / "b", "--name", "b", "--meter", "none", parent=False),
    ]
    yield [agent.control for agent in agents]
    for agent in agents:
        agent.end()


@pytest.mark.alone
def test_watts_are_measured_in_a_profile_and_joules_in_a_run(
    folder: Path, addresses: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = addresses
    (folder / "cluster.yaml").write_text(
        f"model: classifier.onnx\nnodes:\n  - name: a\n    address: {one}\n    host: pc\n"
        f"  - name: b\n    address: {other}\n    host: pc\n"
        "strategy: sequential\nframes: 40\n"
        "pins: {layer0: a, flatten: b}\n"  # what is so small would be faster on one of them
    )
    profile = done(partition, capsys, "profile", "--cluster", "cluster.yaml")
    a, b = (profile["nodes"][name]["measured"] for name in "ab")
    assert profile["energy"] == "a: ten watts; b: ten watts"
    assert a == b, "equal nodes of one machine share their measurements"
    # The machine takes ten watts whether it waits or not; each of two nodes has half of that.
    assert a["idle_w"] == pytest.approx(5.0, rel=0.1)
    assert a["busy_w"] == pytest.approx(5.0, rel=0.2)
    again = done(partition, capsys, "profile", "--cluster", "cluster.yaml")
    assert not any(again["measured_now"].values())
    solve = ("solve", "classifier.onnx", "--cluster", "cluster.yaml", "--strategy", "sequential")
    solved = done(partition, capsys, *solve, "--profile", "profile.json")
    assert solved["watts_predicted"] > 0

    report = done(launch, capsys, "cluster.yaml", "--profile", "profile.json")
    a, b = report["nodes"]
    assert (a["meter"], a["unmetered"]) == ("ten watts", "")
    assert 0 < a["watts"] < 10.0
    assert a["joules_per_frame"] > 0
    assert (b["joules_per_frame"], b["watts"], b["meter"]) == (None, None, "")
    assert b["unmetered"] == "it was started with --meter none"
    assert report["joules_per_frame"] is None
    assert report["joules_per_frame_predicted"] > 0


def test_agents_that_launch_starts_have_the_meters_that_their_nodes_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "cluster.yaml").write_text(
        "model: classifier.onnx\nnodes:\n  - {name: a, meter: ten}\n  - {name: b, meter: none}\n"
        "strategy: sequential\nframes: 4\nverify: false\n"
    )
    a, b = done(launch, capsys, "cluster.yaml")["nodes"]
    assert (a["meter"], a["unmetered"]) == ("ten watts", "")
    assert (b["meter"], b["unmetered"]) == ("", "it was started with --meter none")


def test_a_meter_that_is_not_installed_is_refused_by_the_name_of_its_node(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "cluster.yaml").write_text(
        "model: classifier.onnx\nnodes: [{name: a}, {name: b, meter: plug}]\nframes: 4\n"
    )
    code, _, says = ended(launch, capsys, "cluster.yaml")
    assert code == 2
    assert "node 'b': its agent could not start: --meter plug: no installed package" in says


@pytest.mark.alone
def test_the_power_of_parts_of_the_network_is_measured_and_counts_in_plans(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_convolutions(folder / "heavy.onnx")
    (folder / "cluster.yaml").write_text(
        "model: heavy.onnx\nnodes:\n  - name: a\n    meter: ten\nstrategy: sequential\n"
    )
    done(partition, capsys, "profile", "--cluster", "cluster.yaml")
    path = folder / "profile.json"
    profile = json.loads(path.read_text())
    measured = profile["nodes"]["a"]["measured"]
    assert measured["layer_w"] == pytest.approx({"first": 10.0, "second": 10.0}, rel=0.2)

    def joules(watts: dict[str, float]) -> float:
        measured["layer_w"] = watts
        path.write_text(json.dumps(profile))
        solve = ("solve", "--cluster", "cluster.yaml", "--profile", "profile.json")
        return float(done(partition, capsys, *solve)["joules_per_frame_predicted"])

    once, second = joules({"first": 10.0, "second": 10.0}), measured["layer_s"]["second"]
    assert joules({"first": 10.0, "second": 30.0}) - once == pytest.approx(20 * second, rel=0.5)


def write_convolutions(path: Path) -> None:
    """Two convolutions of equal size, of some milliseconds each."""
    weights = np.full((32, 32, 3, 3), 0.01, np.float32)
    nodes = [
        onnx.helper.make_node("Conv", [given, "w"], [made], name, pads=[1, 1, 1, 1])
        for name, given, made in (("first", "x", "h"), ("second", "h", "y"))
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, 32, 128, 128))
        for name in ("x", "y")
    ]
    kept = [onnx.numpy_helper.from_array(weights, "w")]
    graph = onnx.helper.make_graph(nodes, "heavy", ends[:1], ends[1:], kept)
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), path)
