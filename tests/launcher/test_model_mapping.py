"""`outputs` and `inputs` of a model in cluster.yaml, and the outputs that no node has to make."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml
from onnx import helper

from launcher.config.load import load_cluster
from launcher.errors import BadInputError
from launcher.plan.settings import read_model
from launcher.run.request import Request
from tests.cnn.models import FLOAT, INT64, constant, graph, model, node, save, value, weight
from tests.cnn.test_odd_names import ODD
from tests.launcher.in_process import InProcess
from tests.launcher.launches import AGENTS, launched, reported

Real = pytest.param(lambda: AGENTS, marks=pytest.mark.slow, id="agents")
Here = pytest.param(InProcess, id="in this process")


def write_detector(folder: Path) -> Path:
    """A backbone, scores behind a branch that depends on `rate`, anchors, and what cannot run."""
    branch = {
        f"{name}_branch": graph([node(operator, ["c"], ["p"])], name, [], [value("p")])
        for name, operator in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [
        node("Conv", ["image", "w"], ["c"], "backbone", pads=[1, 1, 1, 1]),
        node("Equal", ["rate", "wanted"], ["is_16"]),
        node("If", ["is_16"], ["scores"], "head", **branch),
        node("Sigmoid", ["scores"], ["boxes"], "boxer"),
        node("Shape", ["c"], ["s"]),
        node("Cast", ["s"], ["anchors"], to=FLOAT),
        node("Swirl", ["boxes"], ["kept"], "mine", domain="my.ops"),
    ]
    proto = model(
        nodes,
        [value("image", (1, 3, 8, 8)), value("rate", (), INT64)],
        [value("kept"), value("anchors")],
        [weight("w", 4, 3, 3, 3), constant("wanted", 16000)],
        domains=["my.ops"],
    )
    return save(proto, folder, "detector.onnx")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    write_detector(tmp_path)
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: {path: detector.onnx, outputs: [scores, anchors, boxes], inputs: {rate: 16000}}\n"
        "nodes: [{name: a}, {name: b}]\nstrategy: sequential\nframes: 3\n"
        "pins: {backbone: a, boxer: b}\n"
    )
    return path


def changed(cluster: Path, **keys: object) -> Path:
    """The same with other keys in the model's mapping."""
    data = yaml.safe_load(cluster.read_text())
    data["model"] |= keys
    cluster.write_text(yaml.safe_dump(data))
    return cluster


def agreed(request: Request, nodes=None) -> None:
    report = reported(request, nodes)
    assert report.agreement is not None
    assert report.agrees


@pytest.mark.parametrize("nodes", [Here, Real])
def test_a_run_gives_the_outputs_that_are_asked_for(
    cluster: Path, nodes: Callable[[], object], tmp_path: Path
) -> None:
    agreed(Request(cluster, output=tmp_path / "out"), nodes())
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files == {
        f"{frame:06d}.{name}.npy" for frame in range(3) for name in ("scores", "boxes", "anchors")
    }
    anchors = np.load(tmp_path / "out" / "000002.anchors.npy")
    np.testing.assert_array_equal(anchors, [1, 4, 8, 8])


def test_a_wrong_constant_does_not_agree(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*arguments: object, **options: object):
        found = read_model(*arguments, **options)
        return replace(found, constant_outputs={"anchors": np.zeros(4, np.float32)})

    monkeypatch.setattr("launcher.plan.planner.read_model", wrong)
    report = reported(Request(cluster))
    assert report.agreement is not None
    assert not report.agrees
    assert report.agreement.worst_output == "anchors"


def test_without_comparison_the_simplified_network_is_held_to_its_file(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    report = reported(Request(cluster, verify=False))
    assert report.agreement is None


@pytest.mark.parametrize(
    "keys", [{"outputs": ["scores"]}, {"inputs": {"rate": 8000}}], ids=["outputs", "inputs"]
)
def test_a_saved_plan_is_for_these_outputs_and_constants(
    cluster: Path, keys: dict[str, object], tmp_path: Path
) -> None:
    folder = tmp_path / "plan"
    launched(Request(cluster, plan_only=True, save=folder))
    agreed(Request(folder))
    changed(folder / "cluster.yaml", **keys)
    with pytest.raises(BadInputError, match=r"plan.json: .*another model"):
        launched(Request(folder))


def test_results_in_a_journal_are_of_these_outputs(cluster: Path, tmp_path: Path) -> None:
    agreed(Request(cluster, journal=tmp_path / "journal", output=tmp_path / "out"))
    changed(cluster, inputs={"rate": 8000})
    with pytest.raises(BadInputError, match="its model differs"):
        launched(Request(cluster, journal=tmp_path / "journal", resume=True))


def test_one_of_several_networks_may_have_outputs_and_constants(
    cluster: Path, tmp_path: Path
) -> None:
    data = yaml.safe_load(cluster.read_text())
    one = data["model"]
    data["model"] = [one, {**one, "name": "other", "outputs": "boxes", "inputs": {"rate": 1}}]
    data["pins"] = {"detector/backbone": "a", "other/backbone": "b"}
    cluster.write_text(yaml.safe_dump(data))
    agreed(Request(cluster, output=tmp_path / "out"))
    files = {path.name for path in (tmp_path / "out").glob("*/000000*")}
    assert files == {f"000000.{x}.npy" for x in ("scores", "boxes", "anchors")} | {"000000.npy"}


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"outputs": ["score"]}, "line 1, model: .*no tensor 'score'; did you mean 'scores'"),
        ({"outputs": []}, "line 1, model.outputs: must not be empty"),
        ({"outputs": [1]}, r"model.outputs\[0\]: must be text, not 1"),
        ({"inputs": {"rat": 1}}, "line 1, model: .*no input 'rat'; did you mean 'rate'"),
        ({"inputs": {"rate": 1.5}}, "line 1, model: .*is 1.5, but the input holds int64"),
        ({"inputs": {"rate": "1"}}, "model.inputs.rate: must be a number, a list of numbers or"),
        (
            {"inputs": {"rate": [[[1]]]}},
            r"model.inputs.rate: must be a number, .*not \[\[\[1\]\]\]",
        ),
        ({"inputs": {"rate": float("inf")}}, "model.inputs.rate: must be a number"),
        ({"inputs": 16000}, "model.inputs: must be a mapping of keys to values, not 16000"),
    ],
)
def test_mistakes_in_outputs_and_inputs(
    cluster: Path, keys: dict[str, object], sentence: str
) -> None:
    data = yaml.safe_load(cluster.read_text())
    data["model"] |= keys
    cluster.write_text(f"model: {json.dumps(data['model'])}\nnodes: [{{name: a}}]\n")
    if "inf" in repr(keys):
        cluster.write_text(cluster.read_text().replace("Infinity", ".inf"))
    with pytest.raises(BadInputError, match=sentence) as caught:
        read_model(load_cluster(cluster))
    assert "\n" not in str(caught.value)


def test_a_constant_among_the_files_of_networks_is_told_its_place(cluster: Path) -> None:
    cluster.write_text("model: detector.onnx\nnodes: [{name: a}]\ninputs: {rate: 16000}\n")
    with pytest.raises(BadInputError, match=r"inputs.rate: .*model: \{path: …, inputs: \{rate: 16"):
        load_cluster(cluster)


def test_a_constant_of_several_axes_is_a_list_of_lists(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "table"], ["y"])]
    ends = [value("x", (2, 2)), value("table", (2, 2))], [value("y")]
    save(model(nodes, *ends), tmp_path, "net.onnx")
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "model: {path: net.onnx, inputs: {table: [[1, 2.5], [3, 4]]}}\nnodes: [{name: a}]\n"
    )
    (table,) = read_model(load_cluster(path)).weights.values()
    np.testing.assert_array_equal(table, np.array([[1, 2.5], [3, 4]], np.float32))


def write_loop(folder: Path) -> Path:
    """Ten convolutions of one kernel, in a loop."""
    ends = [value("i", (), INT64), value("on", (), onnx.TensorProto.BOOL), value("h")]
    nodes = [
        node("Conv", ["h", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        node("Tanh", ["c"], ["t"], "act"),
    ]
    inner = graph(nodes, "body", ends, [ends[1], value("t"), value("t", (1, 3, 8, 8))])
    inner.output[2].name = "seen"
    inner.node.append(node("Neg", ["t"], ["seen"]))
    loop = node("Loop", ["ten", "", "x"], ["y", "all"], "repeat", body=inner)
    weights = [constant("ten", 10), weight("w", 3, 3, 3, 3)]
    ends_of_all = [value("y"), value("all")]
    return save(model([loop], [value("x", (1, 3, 8, 8))], ends_of_all, weights), folder)


def write_odd_names(folder: Path) -> Path:
    """A chain of layers, and all that they read and make, with the oddest names."""
    odd = list(ODD.values())
    nodes = [node("Conv", [odd[0], f"{name}w"], [f"{name}y"], name) for name in odd[1:]]
    nodes += [node("Relu", [f"{name}y"], [f"{name}out"], "same") for name in odd[1:]]
    weights = [weight(f"{name}w", 4, 3, 1, 1) for name in odd[1:]]
    ends = [value(f"{name}out") for name in odd[1:]]
    return save(model(nodes, [value(odd[0], (1, 3, 8, 8))], ends, weights), folder)


def write_bfloat16(folder: Path) -> Path:
    kind = onnx.TensorProto.BFLOAT16
    bits = np.random.default_rng(0).integers(0x3C00, 0x3E00, (4, 3, 3, 3)).astype(np.uint16)
    nodes = [
        node("Cast", ["x"], ["h"], to=kind),
        node("Conv", ["h", "w"], ["c"], "conv"),
        node("Relu", ["c"], ["r"], "act"),
        node("Cast", ["r"], ["y"], to=FLOAT),
    ]
    kernel = helper.make_tensor("w", kind, bits.shape, bits.tobytes(), raw=True)
    return save(model(nodes, [value("x", (1, 3, 8, 8))], [value("y")], [kernel]), folder)


@pytest.mark.usefixtures("quick_searches")
@pytest.mark.parametrize("nodes", [Here, Real])
@pytest.mark.parametrize("write", [write_loop, write_odd_names, write_bfloat16])
def test_networks_that_are_written_unusually_run(
    write: Callable[[Path], Path], nodes: Callable[[], object], tmp_path: Path
) -> None:
    file = write(tmp_path)
    path = tmp_path / "cluster.yaml"
    path.write_text(
        f"model: {file.name}\nnodes: [{{name: a}}, {{name: b}}]\nstrategy: vertical\nframes: 2\n"
    )
    agreed(Request(path, output=tmp_path / "out"), nodes())
    assert list((tmp_path / "out").iterdir())


def test_a_loop_that_is_written_out_is_spread_over_nodes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    write_loop(tmp_path)
    path.write_text(
        "model: model.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\n"
        "pins: {'conv[[]0[]]': a, 'conv[[]9[]]': b}\nframes: 2\n"
    )
    outcome = launched(Request(path, output=tmp_path / "out"))
    assert {phase.device for phase in outcome.plan.phases} == {"a", "b"}
    assert outcome.report.agrees
