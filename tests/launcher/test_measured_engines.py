"""`engine: auto` by measurement: which engine a profile chooses, and what `launch` does with it.

The engines of the tests with agents come from a package that is installed for them. `lab-again`
computes every frame twenty times, `lab-once` computes it once, and `lab-refusing` cannot load
anything. All compute on the device `lab`, which no other engine has.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cnn.model import Model, read
from launcher.commands.launch import main as launch
from launcher.commands.partition import main as partition
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.plan.devices import Facts
from launcher.plan.engines import split_by_engine
from launcher.plan.planner import Planner
from launcher.plan.profile.engines import compared, sample, usable
from launcher.plan.profile.file import (
    ComparedEngines,
    NodeEntry,
    NodeIdentity,
    NodeTimes,
    ProfileCache,
    ProfileFile,
    read_profile,
    write_atomically,
)
from launcher.plan.profile.use import profile_file
from nodes.core.engines import AUTO
from nodes.executors import registry
from nodes.protocol.messages import PROTOCOL, DeviceOffer, EngineChoice, EngineOffer, Welcome
from partition.devices import Device
from partition.measured.profiles import NodeProfile
from tests.launcher.models import write_branches

ROOT = Path(__file__).parents[2]

PLUGIN = """
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.engine import OnnxRuntimeEngine
from nodes.protocol.messages import DeviceOffer

class Once(OnnxRuntimeEngine):
    loads = staticmethod(lambda subnet: subnet)

    def devices(self):
        return (DeviceOffer("lab"),)

    def open(self, cache, device, room):
        executor, loads = super().open(cache, "cpu", room), self.loads
        load = executor.load
        executor.load = lambda graph, options: loads(load(graph, options))
        return executor

class Again(Once):
    class loads:
        def __init__(self, subnet):
            self.subnet, self.inputs, self.outputs = subnet, subnet.inputs, subnet.outputs
            self.close = subnet.close

        def run(self, inputs):
            for _ in range(20):
                outputs = self.subnet.run(inputs)
            return outputs

class Refusing(Once):
    @staticmethod
    def loads(subnet):
        raise ExecutorError("subnet a: this engine computes nothing; choose another")
"""


def test_the_fastest_engine_is_chosen_and_the_reason_names_how_much_faster_it_is() -> None:
    found = compared({"onnxruntime": 1.31, "openvino": 1.0, "tvm": 4.0}, {}, layers=3)
    assert found.chosen == "openvino"
    assert found.reason == (
        "measured: 1.31 times as fast as onnxruntime, 4.00 times as fast as tvm"
    )


def test_among_equally_fast_engines_the_first_is_chosen() -> None:
    assert compared({"onnxruntime": 1.005, "openvino": 1.0}, {}, layers=3).chosen == "onnxruntime"
    assert compared({"onnxruntime": 1.02, "openvino": 1.0}, {}, layers=3).chosen == "openvino"


def test_an_engine_that_is_left_out_is_named_with_the_reason() -> None:
    found = compared({"onnxruntime": 1.0}, {"tvm": "it has no Erf"}, layers=3)
    assert str(found) == (
        "onnxruntime, measured: no other engine computes this network; tvm left out: it has no Erf"
    )
    assert compared({}, {"tvm": "it has no Erf"}, layers=3).chosen == ""


def test_only_engines_are_compared_that_have_what_the_node_asks_for() -> None:
    offers = (
        EngineOffer("tensorrt", "", (DeviceOffer("gpu", ("fp32", "fp16")),)),
        EngineOffer("onnxruntime", "", (DeviceOffer("cpu"), DeviceOffer("gpu"))),
        EngineOffer("openvino", "", (DeviceOffer("cpu", ("fp32", "fp16")),)),
        EngineOffer("tvm", "it is not installed"),
    )

    def names(choice: EngineChoice) -> list[str]:
        return [each.engine for each in usable(choice, offers)]

    assert names(EngineChoice()) == ["tensorrt", "onnxruntime", "openvino"]
    assert names(EngineChoice(device="cpu")) == ["onnxruntime", "openvino"]
    assert names(EngineChoice(precision="fp16")) == ["tensorrt", "openvino"]


def test_a_node_without_room_for_a_copy_compares_engines_on_a_piece(tmp_path: Path) -> None:
    model = read(write_branches(tmp_path / "branches.onnx"))
    everything = {layer.name for layer in model.network.layers}
    assert set(sample(model, Device("a")).assignment) == everything
    piece = sample(model, Device("a", memory_bytes=54_000_001))
    assert set(piece.assignment) <= everything
    assert len(piece.phases) == 1


def choosing(chosen: str = "openvino") -> ComparedEngines:
    return ComparedEngines(chosen=chosen, seconds={"onnxruntime": 2e-3, "openvino": 1e-3}, layers=7)


def written(folder: Path, asked: str, engines: ComparedEngines | None) -> Path:
    """A cluster of one node with a profile that compares `engines`."""
    model = read(write_branches(folder / "branches.onnx"))
    path = folder / "cluster.yaml"
    path.write_text(
        f"model: branches.onnx\nnodes: [{{name: a, engine: {asked}}}]\nprofile: profile.json\n"
    )
    identity = NodeIdentity(
        host=socket.gethostname(), threads=1, cpus=(), machine="m", cores=1, engine="e",
        version="1", asked="" if engines is None else f"{engines.chosen}, auto, fp32",
    )  # fmt: skip
    times = NodeTimes.of(NodeProfile({layer.name: 1e-3 for layer in model.network.layers}))
    entry = NodeEntry(identity=identity, measured=times, engines=engines)
    file = ProfileFile(model="branches", model_digest=model.digest, energy="", nodes={"a": entry})
    write_atomically(folder / "profile.json", file)
    return path


def planner_of(cluster: Cluster, model: Model) -> Planner:
    file = profile_file(cluster, model)
    assert file is not None
    return Planner(cluster, model, file, Facts(engines=file.chosen_engines()))


def test_a_profile_names_the_engine_of_a_node_that_leaves_it_open(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, AUTO, choosing()))
    model = read(tmp_path / "branches.onnx")
    planner = planner_of(cluster, model)
    assert planner.nodes[0].choice.engine == "openvino"
    assert planner.reasons == {"a": "measured: 2.00 times as fast as onnxruntime"}
    welcome = Welcome(
        PROTOCOL, "a", "0", "", "e", "m", 1, 1,
        engines=(EngineOffer("openvino", "it is not installed: `pip install openvino`"),),
    )  # fmt: skip
    _, lacking = split_by_engine(cluster, {"a": welcome}, planner.facts, planner.reasons)
    assert re.search(r"pip install openvino.*measure again with", str(lacking["a"]))


def test_an_engine_that_the_cluster_names_is_not_replaced_by_the_profiles(tmp_path: Path) -> None:
    cluster = load_cluster(written(tmp_path, "openvino", choosing()))
    assert planner_of(cluster, read(tmp_path / "branches.onnx")).nodes == cluster.config.nodes
    other = load_cluster(written(tmp_path, "onnxruntime", choosing()))
    with pytest.raises(BadInputError, match=r"another node 'a': asked 'openvino, auto, fp32'"):
        profile_file(other, read(tmp_path / "branches.onnx"))


def test_a_profile_from_before_engines_were_compared_leaves_the_engine_to_the_agent(
    tmp_path: Path,
) -> None:
    cluster = load_cluster(written(tmp_path, AUTO, None))
    path = tmp_path / "profile.json"
    old = json.loads(path.read_text()) | {"format": 1}
    del old["nodes"]["a"]["engines"]
    path.write_text(json.dumps(old))
    file = profile_file(cluster, read(tmp_path / "branches.onnx"))
    assert file == read_profile(path)
    planner = planner_of(cluster, read(tmp_path / "branches.onnx"))
    assert planner.nodes[0].engine == AUTO
    assert planner.reasons == {}


def test_the_cache_keeps_comparisons_by_the_engines_that_were_compared(tmp_path: Path) -> None:
    cache = ProfileCache(tmp_path)
    identity = NodeIdentity(
        host="pi", threads=1, cpus=(), machine="m", cores=1, engine="e", version="1"
    )
    both = (EngineChoice("onnxruntime", "cpu"), EngineChoice("openvino", "cpu"))
    cache.keep_engines("d", identity, both, choosing())
    assert cache.engines("d", identity, both) == choosing()
    assert cache.engines("d", identity, both[:1]) is None
    assert cache.engines("other", identity, both) is None


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cluster whose node `a` may compute with either engine of the package."""
    package = tmp_path / "package"
    info = package / "csdf_lab-1.0.dist-info"
    info.mkdir(parents=True)
    (package / "csdf_lab.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: csdf-lab\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[csdf_edge.executors]\nlab-again = csdf_lab:Again\nlab-refusing = csdf_lab:Refusing\n"
        "lab-once = csdf_lab:Once\n"
    )
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(
        "model: branches.onnx\nnodes: [{name: a, device: lab}, {name: b, device: cpu}]\n"
        "strategy: sequential\npins: {stem: a, head: b}\nframes: 4\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{package}:{ROOT}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    registry._plugins.cache_clear()
    return tmp_path


def run(
    command: Callable[[list[str]], None], capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[Any, str]:
    with pytest.raises(SystemExit) as ended:
        command([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert not ended.value.code, out + err
    return json.loads(out), err


@pytest.mark.slow
def test_a_profile_measures_every_engine_and_launch_deploys_the_fastest(
    lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, err = run(partition, capsys, "profile", "--cluster", "cluster.yaml")
    found = data["nodes"]["a"]["engines"]
    assert found["chosen"] == "lab-once"
    assert set(found["seconds"]) == {"lab-once", "lab-again"}
    assert found["seconds"]["lab-again"] > found["seconds"]["lab-once"]
    assert "this engine computes nothing" in found["left_out"]["lab-refusing"]
    assert "node a: lab-refusing is left out: " in err
    assert data["nodes"]["b"]["engines"] is None, "its agent offers one engine"

    again, err = run(partition, capsys, "profile", "--cluster", "cluster.yaml")
    assert again["nodes"] == data["nodes"]
    assert "comparing engines" not in err

    plan, _ = run(launch, capsys, "cluster.yaml", "--plan-only")
    found = {node["name"]: (node["engine"], node["engine_reason"]) for node in plan["nodes"]}
    assert found == {"a": ("lab-again", None), "b": ("onnxruntime", None)}, "the first of each"
    with_it = ("cluster.yaml", "--profile", "profile.json")
    plan, err = run(launch, capsys, *with_it, "--plan-only")
    a = next(node for node in plan["nodes"] if node["name"] == "a")
    assert a["engine"] == "lab-once"
    assert a["engine_reason"].startswith("measured: ")
    assert a["engine_reason"].endswith(" times as fast as lab-again")
    assert f"a lab-once on lab (fp32) ({a['engine_reason']})" in err
    report, _ = run(launch, capsys, *with_it)
    a = next(node for node in report["nodes"] if node["name"] == "a")
    assert (a["engine"], a["engine_reason"]) == ("lab-once", plan["nodes"][0]["engine_reason"])
    assert report["max_relative_error"] <= 1e-4
