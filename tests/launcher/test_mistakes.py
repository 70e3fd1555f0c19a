"""What users get wrong with a command: a sentence each, exit code 2, nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from launcher.commands.ga import main as ga
from launcher.commands.launch import main as launch
from launcher.commands.partition import main as partition
from tests.launcher.models import write_branches

CLUSTER = "model: branches.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\n"
MAIN = {"launch": launch, "partition": partition, "ga": ga}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_branches(tmp_path / "branches.onnx")
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], folder: Path, line: str) -> str:
    """The sentence, which is the same in JSON; nothing else is printed or left behind."""
    command, *arguments = line.split()
    before = sorted(folder.rglob("*"))
    sentences = []
    for more in ((), ("--json",)):
        with pytest.raises(SystemExit) as ended:
            MAIN[command]([*arguments, *more])
        out, err = capsys.readouterr()
        assert ended.value.code == 2
        assert "Traceback" not in err
        assert sorted(folder.rglob("*")) == before
        name, _, sentence = err.splitlines()[-1].partition(": ")
        assert name in ("launch", "ga", "csdf-edge partition")
        assert out == "" if not more else json.loads(out) == {"error": sentence, "exit_code": 2}
        sentences.append(sentence)
    assert sentences[0] == sentences[1]
    return sentences[0]


SOLVE = "partition solve branches.onnx --devices 2"
COMPARE = "partition compare branches.onnx --devices"
SWEEP = "ga sweep cluster.yaml --trials 1"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("launch --seed 1", "CLUSTER_OR_PLAN"),
        ("launch c.yaml --frmes 3", "--frmes"),
        ("launch c.yaml --nix", "No such option: --nix (see launch --help)"),
        ("launch c.yaml --frames 0", "--frames must be at least 1, not '0' (see launch --help)"),
        ("launch c.yaml --frames 10000000000000000000000", "--frames must be at most"),
        ("launch c.yaml --seed 1.5", "--seed must be a whole number, not '1.5' (see launch --hel"),
        ("launch c.yaml --seed 4294967296", "--seed must be at most"),
        ("launch c.yaml --tolerance x", "--tolerance must be a number, not 'x' (see launch --he"),
        ("launch c.yaml --order x", "--order: 'x' is not one of 'pipelined', 'strict' (see launch"),
        ("launch show c.yaml", "there is no command 'show', and no file of that name"),
        ("launch none.yaml", "none.yaml: there is no such file"),
        ("launch branches.onnx", "branches.onnx: is a model; name a cluster.yaml instead"),
        (
            "launch cluster.yaml --input rtsp://me:secret@camera/stream --input x.png",
            "--input: 'rtsp://camera/stream' is a source, of which there can be only one",
        ),
        ("partition solve --devices 2", "MODEL is missing"),
        ("partition solve branches.onnx", "--devices N"),
        (
            "partition solve branches.onnx --devices 0",
            "--devices must be at least 1, not '0' (see csdf-edge partition solve --help)",
        ),
        ("partition solve branches.onnx --devices abc", "--devices must be a whole number, not"),
        ("partition solve branches.onnx --devices 100000", "must be at most 64, not '100000'"),
        (f"{SOLVE} --cluster cluster.yaml", "either --devices"),
        (f"{SOLVE} --strategy hibrid", "did you mean 'hybrid'?"),
        (f"{SOLVE} --strategy best", "unknown strategy 'best'; known are auto, batch-split, "),
        (f"{SOLVE} --strategy manual", "needs a device for every layer"),
        (f"{SOLVE} --memory much", "--memory must be a size"),
        (f"{SOLVE} --memory 10MB", "engine alone needs 54.0 MB while it"),
        (f"{SOLVE} --memory 49MB", "may hold 49.0 MB"),
        (f"{SOLVE} --link fast", "--link must be a rate"),
        (f"{SOLVE} --save plan", "--save needs --cluster"),
        (f"{SOLVE} --objective beauty", "beauty"),
        (f"{SOLVE} --within 200%", "--within must be a share from 0 to 1"),
        (
            f"{SOLVE} --objective memory --within 5%",
            "--within has no effect with the objective m",
        ),
        ("partition solve none.onnx --devices 2", "none.onnx: there is no such file"),
        ("partition solve cluster.yaml --devices 2", "cluster.yaml: this is not an ONNX file"),
        ("partition solve . --devices 2", "Is a directory"),
        ("partition solve onnx-wheel:resnet51 --devices 2", "the networks are onnx-wheel:"),
        ("partition solve --cluster none.yaml", "none.yaml: there is no such file"),
        ("partition solve --cluster cluster.yaml --link 1Gbit/s", "for --cluster, write memory, l"),
        ("partition compare none.onnx --devices 2", "none.onnx: there is no such file"),
        (f"{COMPARE} 10..2", "--devices '10..2': name numbers from 1 to 64, ascending"),
        (f"{COMPARE} 0", "from 1 to"),
        (f"{COMPARE} abc", "write numbers of devices as 2..10 or 2,4,8"),
        (f"{COMPARE} 2 --memory 10MB", "'device1' may hold 10.0 MB"),
        (f"{COMPARE} 2 --strategies sequentiel", "sequential"),
        (f"{COMPARE} 2 --strategies ,", "at least one"),
        (f"{COMPARE} 2 --html cluster.yaml/x.html", "cannot be written"),
        (f"{COMPARE} 2 --html .", "is a folder"),
        ("partition show none", "none: is not a saved plan"),
        ("partition show cluster.yaml", "is not a saved plan"),
        ("partition show none/plan.json", "none/plan.json: there is no such file"),
        ("ga sweep cluster.yaml", "--trials"),
        ("ga sweep cluster.yaml --trials 0", "--trials"),
        ("ga sweep none.yaml --trials 1", "none.yaml"),
        (f"{SWEEP} --strategy sequential", "sequential"),
        (f"{SWEEP} --objective beauty", "beauty"),
        (f"{SWEEP} --model none.onnx", "none.onnx"),
        (f"{SWEEP} --storage none/here.db", "there is no folder"),
        (f"{SWEEP} --output made/for/it --storage foreign://host/base", "foreign"),
        (f"{SWEEP} --storage ://", "not a database URL"),
        (f"{SWEEP} --output cluster.yaml", "--output 'cluster.yaml'"),
        (f"{SWEEP} --budget 0", "--budget"),
    ],
)
def test_an_option_that_makes_no_sense(
    folder: Path, capsys: pytest.CaptureFixture[str], line: str, sentence: str
) -> None:
    said = refused(capsys, folder, line)
    assert sentence in said
    assert "secret" not in said


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
    sentence = refused(capsys, folder, "partition solve dynamic.onnx --devices 2")
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
    assert sentence in refused(capsys, folder, "partition solve --cluster cluster.yaml")


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
    line = "partition solve --cluster cluster.yaml --strategy sequential"
    sentence = refused(capsys, folder, line)
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
        partition(["solve", "--cluster", "cluster.yaml", "--save", "plan"])
    assert ended.value.code == 0
    capsys.readouterr()
    file = folder / "plan" / "plan.json"
    data = json.loads(file.read_text())
    if change is not None:
        change(data)
    file.write_text("{\n" if change is None else json.dumps(data))
    found = refused(capsys, folder, "partition show plan --output plan.svg")
    assert sentence in found
    assert "plan/plan.json" in found
