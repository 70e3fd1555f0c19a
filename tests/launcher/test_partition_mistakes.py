"""What users get wrong with `partition`: a sentence each, exit code 2, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from launcher.commands.partition import main
from tests.launcher.models import write_branches

CLUSTER = "model: branches.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> str:
    """The sentence; nothing but the sentence has come out of it."""
    before = sorted(folder.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert "Traceback" not in err
    assert sorted(folder.rglob("*")) == before
    return err.splitlines()[-1].removeprefix("csdf-edge partition: ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("solve --devices 2", "MODEL is missing"),
        ("solve branches.onnx --devices 0", "--devices must be at least 1, not '0'"),
        ("solve branches.onnx --devices abc", "--devices must be a whole number, not 'abc'"),
        ("solve branches.onnx --devices 100000", "must be at most 64, not '100000'"),
        ("solve branches.onnx --devices 2 --strategy hibrid", "did you mean 'hybrid'?"),
        ("solve branches.onnx --devices 2 --strategy best", "known are auto, batch-split, "),
        ("solve branches.onnx --devices 2 --strategy manual", "needs a device for every layer"),
        ("solve branches.onnx --devices 2 --memory 10MB", "engine alone needs 54.0 MB while it"),
        ("solve none.onnx --devices 2", "none.onnx: there is no such file"),
        ("solve cluster.yaml --devices 2", "cluster.yaml: this is not an ONNX file"),
        ("solve . --devices 2", "Is a directory"),
        ("solve onnx-wheel:resnet51 --devices 2", "there are onnx-wheel:"),
        ("solve --cluster none.yaml", "none.yaml: there is no such file"),
        ("compare none.onnx --devices 2", "none.onnx: there is no such file"),
        ("compare branches.onnx --devices 10..2", "--devices '10..2': name numbers from 1 to 64"),
        ("compare branches.onnx --devices abc", "write numbers of devices as 2..10 or 2,4,8"),
        ("compare branches.onnx --devices 2 --memory 10MB", "'device1' may hold 10.0 MB"),
        ("compare branches.onnx --devices 2 --html cluster.yaml/x.html", "cannot be written"),
        ("show none", "none: is not a saved plan"),
        ("show none/plan.json", "none/plan.json: there is no such file"),
    ],
)
def test_an_option_that_makes_no_sense(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: str, sentence: str
) -> None:
    assert sentence in refused(capsys, folder, *arguments.split())


def test_a_model_of_dynamic_shape(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "dynamic",
        [value("x", onnx.TensorProto.FLOAT, ["batch", "width"])],
        [value("y", onnx.TensorProto.FLOAT, ["batch", "width"])],
    )
    opset = helper.make_opsetid("", 13)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    onnx.save(model, str(folder / "dynamic.onnx"))
    sentence = refused(capsys, folder, "solve", "dynamic.onnx", "--devices", "2")
    assert "'x'" in sentence
    assert "input_shape" in sentence


@pytest.mark.parametrize(
    ("cluster", "sentence"),
    [
        ("nodes: []", "line 2, nodes: lists no node"),
        ("strategy: seqential", "line 3, strategy: unknown strategy 'seqential'"),
        ("pins: {'l*': a, 'le*': b}", "pins layer 'left' to 'b', but 'l*' pins it to 'a'"),
        ("pins: {left: c}", "line 4, pins.left: there is no node 'c'; the nodes are a, b"),
        ("pins: {lefft: a}", "line 4, pins.lefft: no layer of branches is called 'lefft'"),
        ("pins: {stem: a, left: b, join: a, right: b}", "no contiguous cut respects these pins"),
        ("nodes: [{name: a, memory: 1MB}, {name: b}]", "'a' may hold 1.0 MB, and its engine"),
    ],
)
def test_a_cluster_that_no_plan_is_possible_for(
    folder: Path, capsys: pytest.CaptureFixture[str], cluster: str, sentence: str
) -> None:
    key = cluster.partition(":")[0]
    lines = [line for line in CLUSTER.splitlines() if not line.startswith(key)]
    lines.insert(1 if key == "nodes" else 3, cluster)
    (folder / "cluster.yaml").write_text("\n".join(lines))
    assert sentence in refused(capsys, folder, "solve", "--cluster", "cluster.yaml")


def test_a_pin_into_too_small_a_node(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = onnx.numpy_helper.from_array(np.ones((2048, 4096), np.float32), "w")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"], "wide"),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "large",
        [value("x", onnx.TensorProto.FLOAT, [1, 2048])],
        [value("z", onnx.TensorProto.FLOAT, [1, 4096])],
        [weights],
    )
    opset = helper.make_opsetid("", 13)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=8), "large.onnx")
    Path("cluster.yaml").write_text(
        "model: large.onnx\nnodes: [{name: a, memory: 61MB}, {name: b}]\npins: {wide: a}\n"
    )
    given = ("solve", "--cluster", "cluster.yaml", "--strategy", "sequential")
    sentence = refused(capsys, folder, *given)
    assert "'a'" in sentence
    assert "raise the memory" in sentence


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data.update(model_digest="0" * 64), "was made for another model"),
        (lambda data: data.update(format=9), "is not a plan that this version of launch reads"),
        (lambda data: data.pop("assignment"), "assignment must be a mapping"),
        (lambda data: data["assignment"].update(c=data["assignment"].pop("a")), "no node 'c'"),
        (None, "line 2: is not valid JSON"),
    ],
)
def test_a_saved_plan_that_cannot_be_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], change: Change | None, sentence: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["solve", "--cluster", "cluster.yaml", "--save", "plan"])
    assert ended.value.code == 0
    capsys.readouterr()
    file = folder / "plan" / "plan.json"
    data = json.loads(file.read_text())
    if change is not None:
        change(data)
    file.write_text("{\n" if change is None else json.dumps(data))
    found = refused(capsys, folder, "show", "plan", "--output", "plan.svg")
    assert sentence in found
    assert "plan/plan.json" in found
