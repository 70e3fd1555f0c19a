"""`partition profile`: what it writes, and who may use it; all of it for real."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from cnn.model import read
from launcher.commands.launch import main as launch
from launcher.commands.partition import main as partition
from launcher.config.load import load_cluster
from launcher.core.roll import Greeted, Roll
from launcher.errors import BadInputError
from launcher.plan.measuring import ROUNDS, kinds, measure
from launcher.plan.planner import Planner
from launcher.plan.profile.bench import (
    BATCH_S,
    FEWEST_FRAMES,
    MOST_FRAMES,
    batch_sizes,
    two_batches,
)
from launcher.plan.profile.file import (
    DeclaredIdentity,
    LinkTimes,
    NodeEntry,
    NodeIdentity,
    NodeTimes,
    ProfileCache,
    ProfileFile,
    read_profile,
    write_atomically,
)
from launcher.plan.profile.links import link_times, node_part
from launcher.plan.profile.power import device_watts
from launcher.progress import LineDisplay
from launcher.run.request import Request
from launcher.run.runtime import Node, Runner, RunResult
from nodes.protocol.messages import DeviceOffer, EngineOffer, Stats, Welcome
from partition.measured.profiles import NodeProfile, SubnetTime
from partition.plan import Plan
from tests.launcher.in_process import InProcess
from tests.launcher.launches import in_json, launched
from tests.launcher.models import write_branches

PI = NodeIdentity(
    host="pi", threads=2, cpus=(), machine="Raspberry Pi 4", cores=4, engine="ORT", version="1"
)
TIMES = NodeProfile(
    {"stem": 1e-3},
    (SubnetTime(("stem",), ("x",), ("y",), "", 9e-4),),
    1e-5,
    1e-9,
    6.0,
    2.5,
    ((2, 0.3), (8, 0.9)),
)

LAYERS = tuple(TIMES.layer_s)


def profile(identity: NodeIdentity = PI) -> ProfileFile:
    entry = NodeEntry(identity=identity, measured=NodeTimes.of(TIMES))
    return ProfileFile(model="net", model_digest="d1", energy="RAPL", nodes={"a": entry})


def known(**changes: Any) -> DeclaredIdentity:
    return DeclaredIdentity(**{"host": "pi", "threads": 2, "cpus": ()} | changes)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "profile.json"
    write_atomically(path, profile())
    assert read_profile(path) == profile()
    assert read_profile(path).profile().nodes["a"] == TIMES
    assert [entry.name for entry in path.parent.iterdir()] == ["profile.json"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "line 1: is not valid JSON"),
        ("[]", "is not a profile that this version reads"),
        ('{"format": 4}', "is not a profile that this version reads"),
        ('{"format": 1, "model": 3}', "measure again"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=sentence):
        read_profile(path)


def test_an_engine_that_was_chosen_without_a_time_is_damage(tmp_path: Path) -> None:
    data = profile().model_dump(mode="json")
    data["nodes"]["a"]["engines"] = {"chosen": "tvm", "seconds": {}, "layers": 1}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(data))
    with pytest.raises(BadInputError, match=r"nodes\.a\.engines: .*'tvm' is chosen but has no"):
        read_profile(path)


def test_it_is_for_its_model_and_its_nodes_only() -> None:
    found = profile()
    found.check("p", "net", "d1", {"a": known()})
    whole = PI.model_dump()
    found.check("p", "net", "d1", {"a": NodeIdentity(**whole)})
    for nodes, sentence in (
        ({"b": known()}, "has no times of node 'b', only of a"),
        ({"a": known(host="other")}, "another node 'a': host 'pi', not 'other'"),
        ({"a": known(threads=4)}, "threads 2, not 4"),
        ({"a": NodeIdentity(**whole | {"engine": "TensorRT"})}, "engine 'ORT', not 'TensorRT'"),
        ({"a": NodeIdentity(**whole | {"machine": "x86"})}, "machine 'Raspberry Pi 4', not 'x86'"),
    ):
        with pytest.raises(BadInputError, match=sentence):
            found.check("p", "net", "d1", nodes)
    with pytest.raises(BadInputError, match=r"a profile of the model net, not of other"):
        found.check("p", "other", "d2", {"a": known()})


def test_the_cache_knows_models_nodes_and_links_apart(tmp_path: Path) -> None:
    cache = ProfileCache(tmp_path / "cache")
    other = PI.model_copy(update={"engine": "TensorRT"})
    assert cache.node("d1", PI, LAYERS) is None
    cache.keep_node("d1", PI, NodeTimes.of(TIMES))
    assert cache.node("d1", PI, LAYERS) == NodeTimes.of(TIMES)
    assert cache.node("d2", PI, LAYERS) is None
    assert cache.node("d1", other, LAYERS) is None
    there, found = PI.model_copy(update={"host": "pi2"}), LinkTimes(latency_s=1, bytes_per_s=1e7)
    cache.keep_link(PI, there, found)
    assert cache.link(PI, there) == cache.link(other, there) == found
    assert cache.link(there, PI) == found
    assert cache.link(PI, PI) is None
    for path in (tmp_path / "cache").iterdir():
        path.write_text("{")
    assert cache.node("d1", PI, LAYERS) is None


def test_alike_boards_on_two_machines_are_one_kind_only_if_the_user_says_so() -> None:
    other = PI.model_copy(update={"host": "pi2"})
    faster = PI.model_copy(update={"machine": "Raspberry Pi 5"})
    nodes = {"a": PI, "b": other, "c": faster}
    assert kinds(nodes, alike=False) == nodes
    found = kinds(nodes, alike=True)
    assert found["a"] == found["b"] != found["c"]


def test_a_link_is_a_line_through_two_sizes() -> None:
    found = link_times([1000, 1_001_000], [2e-3 + 1e-4, 2e-3 + 0.1001])
    assert found.latency_s == pytest.approx(1e-3)
    assert found.bytes_per_s == pytest.approx(1e7)
    assert link_times([1000, 2000], [1.0, 1.0]) == LinkTimes(latency_s=0.5, bytes_per_s=None)
    assert link_times([4000], [0.5]) == LinkTimes(latency_s=0.0, bytes_per_s=8000.0)


def test_the_larger_batch_of_a_copy_is_the_median_of_three() -> None:
    """Two frames are in after 3 s, then always two more after 1 s, 9 s (a disturbance) and 2 s."""
    received_s = [12.0, 13.0, 13.5, 14.0, 20.0, 23.0, 24.0, 25.0]
    assert two_batches(10.0, received_s, 2, 4) == ((2, 3.0), (4, 5.0))


@pytest.mark.parametrize("frame_s", [0.0, 1e-6, 1e-3, 0.05, 1.0, 100.0])
def test_batches_of_a_copy_take_neither_long_nor_nothing(frame_s: float) -> None:
    few, many = batch_sizes(frame_s)
    assert 1 <= few < many <= MOST_FRAMES
    assert many >= FEWEST_FRAMES
    assert many * frame_s <= max(BATCH_S, FEWEST_FRAMES * frame_s)


STATS = Stats(1, (10,), (0.5,), 2.0, 0.5, *[0] * 7, energy_j=14.0)
"""A node has computed for a quarter of two seconds; its machine took seven watts."""


def test_a_nodes_power_is_what_its_machine_takes_beyond_waiting_while_the_node_computes() -> None:
    assert device_watts(STATS, 4.0, 1) == pytest.approx((4.0 + 3.0 / 0.25, 4.0))


def test_nodes_of_a_machine_share_what_it_takes_idle() -> None:
    assert device_watts(STATS, 4.0, 2) == pytest.approx((2.0 + 3.0 / 0.25, 2.0))


def test_a_power_that_was_not_measured_is_not_a_number() -> None:
    assert device_watts(replace(STATS, energy_j=None), 4.0, 1) == (None, 4.0)
    assert device_watts(replace(STATS, busy_s=(0.1,)), 4.0, 1) == (None, 4.0), "it hardly computed"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\n"
        "strategy: sequential\npins: {stem: a, head: b}\nframes: 4\n"
    )
    return tmp_path


def test_a_profile_that_is_not_there_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, *arguments in (
        (partition, "solve", "branches.onnx", "--cluster", "cluster.yaml"),
        (launch, "cluster.yaml"),
    ):
        code, data = in_json(command, capsys, *arguments, "--profile", "none.json")
        assert code == 2
        assert "none.json: there is no such profile" in data["error"]
    code, data = in_json(
        partition, capsys, "solve", "branches.onnx", "--devices", "2", "--profile", "none.json"
    )
    assert code == 2
    assert "--profile needs --cluster" in data["error"]


@pytest.mark.slow
def test_measured_solved_launched_and_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("profile", "--cluster", "cluster.yaml")
    code, data = in_json(partition, capsys, *wanted)
    assert code == 0, data
    assert data["measured_now"]["layers"] > 0
    assert data["measured_now"]["subnets"] > 0
    assert set(data["nodes"]) == {"a", "b"}
    layers = data["nodes"]["a"]["measured"]["layer_s"]
    assert set(layers) == {"stem", "left", "right", "join", "pool", "head", "aux"}
    assert all(seconds > 0 for seconds in layers.values())

    code, again = in_json(partition, capsys, *wanted)
    assert code == 0
    assert not any(again["measured_now"].values())
    assert again["nodes"] == data["nodes"]

    with_it = ("--profile", "profile.json")
    solve = ("solve", "branches.onnx", "--cluster", "cluster.yaml", "--strategy", "sequential")
    code, solved = in_json(partition, capsys, *solve, *with_it)
    assert code == 0
    assert solved["times"] == "measured"
    code, report = in_json(launch, capsys, "cluster.yaml", *with_it)
    assert code == 0
    assert report["max_relative_error"] <= 1e-4

    assert in_json(partition, capsys, *solve, "--save", "plan")[0] == 0
    of_plan = ("--plan", "plan", "--output", "of-plan.json")
    code, measured = in_json(partition, capsys, *wanted, *of_plan)
    assert code == 0
    code, planned = in_json(launch, capsys, "plan", "--plan-only", "--profile", "of-plan.json")
    assert code == 0
    assert planned["period_planned_s"] == pytest.approx(measured["period_s"])

    path = folder / "profile.json"
    path.write_text(path.read_text().replace("ONNX Runtime", "Another engine"))
    code, refused = in_json(launch, capsys, "cluster.yaml", *with_it)
    assert code == 2
    assert "was measured on another node 'a': engine 'Another engine" in refused["error"]


@pytest.mark.slow
def test_the_best_of_several_plans_is_chosen_by_measured_subnets(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes:\n  - name: a\n  - name: b\nframes: 4\n"
        "strategy: vertical\nga:\n  vertical:\n    budget: 0.02\n"
    )
    code, data = in_json(partition, capsys, "profile", "--cluster", "cluster.yaml")
    assert code == 0, data
    plans = data["choice"]["plans"]
    assert 2 <= len(plans) <= sum(ROUNDS)
    for node in data["nodes"].values():
        (few, few_s), (many, many_s) = node["measured"]["batches"]
        assert few < many
        assert min(few_s, many_s) > 0
    solve = ("solve", "branches.onnx", "--cluster", "cluster.yaml", "--profile", "profile.json")
    code, solved = in_json(partition, capsys, *solve, "--strategy", "vertical")
    assert code == 0, solved
    assert solved["strategy"] == "vertical"
    assert solved["period_s"] == pytest.approx(plans[0]["period_s"])
    assert f"chosen among {len(plans)} plans" in solved["explanation"]
    code, report = in_json(launch, capsys, "cluster.yaml", "--profile", "profile.json")
    assert code == 0, report
    assert f"chosen among {len(plans)} plans" in report["explanation"]
    assert report["max_relative_error"] <= 1e-4


def written(folder: Path, **changes: str) -> str:
    """A profile of the folder's cluster, but for `changes` of what its nodes are."""
    cluster = load_cluster(folder / "cluster.yaml")
    model = read(folder / "branches.onnx")
    times = NodeTimes.of(NodeProfile({layer.name: 1e-3 for layer in model.network.layers}))
    nodes = {}
    for node in cluster.config.nodes:
        told = {**node_part(node).model_dump(), **changes}
        who = NodeIdentity.model_validate({**PI.model_dump(), **told})
        nodes[node.name] = NodeEntry(identity=who, measured=times)
    file = ProfileFile(model="branches", model_digest=model.digest, energy="", nodes=nodes)
    write_atomically(folder / "profile.json", file)
    return "profile.json"


@pytest.mark.parametrize("command", ["solve", "launch"])
def test_a_profile_from_another_machine_or_of_another_model_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def refused(path: str) -> str:
        options = ("--profile", path)
        if command == "solve":
            solve = ("solve", "branches.onnx", "--cluster", "cluster.yaml")
            code, data = in_json(partition, capsys, *solve, *options)
        else:
            code, data = in_json(launch, capsys, "cluster.yaml", "--plan-only", *options)
        assert code == 2
        return str(data["error"])

    told = refused(written(folder, host="elsewhere"))
    assert "profile.json: was measured on another node 'a': host 'elsewhere', not" in told
    assert "measure again with csdf-edge partition profile" in told
    path = written(folder)
    write_branches(folder / "branches.onnx", seed=1)
    assert "was measured before the file of branches was changed" in refused(path)


class Answering(InProcess):
    """Its nodes answer the roll call."""

    def call_roll(self, nodes: tuple[Node, ...], *_: object) -> Roll:
        who = PI.model_dump(include={"machine", "cores", "engine", "version"})
        offers = (EngineOffer("onnxruntime", devices=(DeviceOffer("cpu", ("fp32",)),)),)
        found = (
            Welcome(protocol=3, name=n.name, data_address="", rss_bytes=1, engines=offers, **who)
            for n in nodes
        )
        return Roll({each.name: Greeted(welcome=each) for each in found})


class Slowing(Answering):
    """Each run takes longer than the one before, as on a machine that becomes busy."""

    def run(self, plan: Plan, *given: Any) -> RunResult:
        result, slower = super().run(plan, *given), 1.05 ** len(self.plans)
        warmup_s = {
            node: tuple(slower * 1e-4 * len(p.layers) for p in plan.phases if p.device == node)
            for node in result.warmup_s
        }
        received_s = [slower * 1e-3 * (1 + number) for number in range(len(result.sent_s))]
        return replace(
            result,
            sent_s=(0.0,) * len(result.sent_s),
            received_s=tuple(received_s),
            warmup_s=warmup_s,
            message_s=dict.fromkeys(warmup_s, slower * 1e-5),
        )


def test_a_plan_of_a_profile_is_made_of_all_its_times_however_they_changed_meanwhile(
    folder: Path,
) -> None:
    cluster = load_cluster(folder / "cluster.yaml").changed(
        strategy="auto", pins={"stem": "a", "head": "b"}
    )
    model, progress = read(folder / "branches.onnx"), LineDisplay(StringIO())
    cache = ProfileCache(folder / "cache")
    file, plan, _ = measure(cluster, model, None, progress, cache, runtime=Slowing().runtime)
    assert file.choice is not None
    again = Planner(cluster, model, file).plan(progress)
    assert again.explanation.startswith(plan.explanation)
    assert file.choice.plans[0].period_s == plan.period_s == pytest.approx(again.period_s)
    assert again.channels == plan.channels
    assert again.devices == plan.devices


def test_a_launch_goes_by_the_profile_as_it_was_when_it_began(folder: Path) -> None:
    path = folder / written(folder)

    class Changing(Answering):
        def runtime(self, nodes: tuple[Node, ...]) -> AbstractContextManager[Runner]:
            path.write_text("{}")
            return super().runtime(nodes)

    request = Request(folder / "cluster.yaml", profile=path, frames=2)
    outcome = launched(request, Changing())
    assert outcome.plan is not None
    assert outcome.plan.times == "measured"
