"""Plans whose nodes run TensorRT: engines are built from their subnets here, and not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import cnn
from cnn.model import Model
from ga.strategies import find_strategy
from launcher.commands.partition import main
from launcher.errors import BadInputError
from launcher.plan.engine_check import check_tensorrt
from launcher.plan.subnet_files import cut_subnets
from nodes.executors.base import ExecutorError, LoadOptions, TensorSpec
from nodes.executors.onnx.file import inspect
from nodes.executors.preparing.entries import Job
from nodes.executors.tensor_rt.build import build_engine
from nodes.executors.tensor_rt.library import import_tensorrt_rtx
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan, plan_solution
from partition.strategies.base import Problem
from tests.agreement.comparison import NETWORKS, short_name
from tests.agreement.drawn.check import read_ones
from tests.agreement.drawn.network import draw
from tests.launcher.launches import ended
from tests.launcher.models import DIGITS, write_branches

NAMES = ("a", "b", "c")


@pytest.fixture
def rtx() -> None:
    pytest.importorskip("tensorrt_rtx", reason="TensorRT-RTX is not here; see `make test-tensorrt`")


def planned(model: Model, strategy: str = "sequential") -> Plan:
    devices = tuple(map(Device, NAMES))
    problem = Problem(model.network, devices, {}, 0, model=model)
    solution = find_strategy(strategy).solve(problem)
    return plan_solution(problem, solution, strategy)


def specs(model: Model, names: tuple[str, ...]) -> dict[str, TensorSpec]:
    tensors = (model.network.tensors[name] for name in names)
    return {tensor.name: TensorSpec(tensor.dtype, tuple(tensor.shape)) for tensor in tensors}


def check_engine(
    model: Model, graph: Path, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    """Build an engine from a subnet: it has the model's tensors and at least its weights."""
    job = Job(graph, graph.name, "key", target="8.6")
    engine = build_engine(import_tensorrt_rtx(), job, LoadOptions(), (8, 6))
    assert engine.content.nbytes > sum(file.stat().st_size for file in inspect(graph).external)
    assert list(engine.inputs.items()) == list(specs(model, inputs).items())
    assert list(engine.outputs.items()) == list(specs(model, outputs).items())


def check_engines(model: Model, plan: Plan, folder: Path) -> None:
    """Build an engine from each phase's subnet."""
    whole = model.rewritten(plan.rewrites)
    subnets = cut_subnets(model, plan, folder, lambda _done, _all: None)
    assert subnets
    for phase in plan.phases:
        check_engine(whole, subnets[phase.name].graph, phase.inputs, phase.outputs)


@pytest.mark.slow
@pytest.mark.usefixtures("rtx")
@pytest.mark.parametrize("path", NETWORKS, ids=short_name)
def test_every_subnet_of_a_known_networks_plan_becomes_an_engine(path: str, tmp_path: Path) -> None:
    model = cnn.read(path)
    check_engines(model, planned(model), tmp_path)


@pytest.mark.usefixtures("rtx")
@pytest.mark.parametrize("strategy", ["horizontal", "tiles", "batch-split"])
def test_so_do_the_parts_of_divided_layers(strategy: str, tmp_path: Path) -> None:
    model = cnn.read(DIGITS / "digits.onnx")
    plan = planned(model, strategy)
    check_engines(model, plan, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("rtx")
@pytest.mark.parametrize("seed", range(100, 140))
def test_a_random_network_becomes_an_engine_or_is_refused_with_a_reason(
    seed: int, tmp_path: Path
) -> None:
    drawn = draw(seed)
    if "sequences.recurrent" in drawn.idioms:
        pytest.skip("TensorRT-RTX takes half a minute for a recurrent layer")
    file = tmp_path / "drawn.onnx"
    file.write_bytes(drawn.model.SerializeToString())
    shapes = {x.name: drawn.inputs[x.name].shape for x in drawn.model.graph.input
              if x.name in drawn.inputs}  # fmt: skip
    try:
        model = cnn.read(file, input_shapes=read_ones(drawn.model, shapes))
    except cnn.ModelError as error:
        pytest.skip(f"no subnet is cut of it: {error}")
    inputs, outputs = model.network.inputs, model.network.outputs
    cut = model.cut([layer.name for layer in model.network.layers], inputs, outputs, tmp_path)
    sentence = ""
    try:
        check_engine(model, cut.graph, inputs, outputs)
    except ExecutorError as error:
        sentence = str(error)
    nodes = onnx.load(cut.graph, load_external_data=False).graph.node
    layers = {name for node in nodes for name in (node.name, *node.output)}
    by_parser = any(f"cannot build layer {name!r} (" in sentence for name in layers)
    by_builder = "cannot build an engine from it: " in sentence
    assert not sentence or by_parser or by_builder, sentence
    assert "Error Code" not in sentence


# ------------------------------------------------------------------------------ the command


def solved(
    capsys: pytest.CaptureFixture[str], *given: str, engine: str | None = "tensorrt"
) -> tuple[int, str, str]:
    code, out, err = ended(main, capsys, "solve", *given, *(["--engine", engine] if engine else []))
    return code, out, err.splitlines()[-1]


def write_stack(path: Path, layer: onnx.NodeProto, shape: tuple[int, ...]) -> str:
    """Three convolutions, and then a layer `last` of `t3` and, for a kernel, `w`."""
    generator = np.random.default_rng(0)
    kernels = [generator.standard_normal((3, 3, 3, 3), np.float32) for _ in range(3)]
    weights = {f"w{number}": kernel for number, kernel in enumerate(kernels)}
    weights["w"] = generator.standard_normal((3, 4, 2, 2), np.float32)
    nodes = [
        helper.make_node("Conv", [f"t{i}", f"w{i}"], [f"t{i + 1}"], f"conv{i}", pads=[1] * 4)
        for i in range(3)
    ]
    graph = helper.make_graph(
        [*nodes, layer],
        "stack",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weights[x], x) for x in ("w0", "w1", "w2", *layer.input[1:])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path))
    return str(path)


def test_without_the_wheel_it_says_what_to_install_and_plans_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_branches(tmp_path / "branches.onnx")
    monkeypatch.setattr("launcher.plan.engine_check.find_spec", lambda _: None)
    code, out, sentence = solved(capsys, str(model), "--devices", "2")
    assert (code, out) == (2, "")
    assert "--engine tensorrt: to build engines here, TensorRT-RTX must be installed: `pip" in (
        sentence
    )


@pytest.fixture
def half_on_tensorrt(tmp_path: Path) -> tuple[str, ...]:
    """Arguments with a cluster of which one of two nodes has TensorRT, which lacks layer `last`."""
    pool = helper.make_node("LpPool", ["t3"], ["y"], "last", kernel_shape=[8, 8], p=3)
    model = write_stack(tmp_path / "stack.onnx", pool, (1, 3, 1, 1))
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(
        "model: stack.onnx\nnodes: [{name: a}, {name: b, engine: tensorrt}]\nstrategy: sequential\n"
    )
    return (model, "--cluster", str(cluster), "--json")


def test_without_the_wheel_a_cluster_with_tensorrt_is_planned_and_not_checked(
    half_on_tensorrt: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("launcher.plan.engine_check.find_spec", lambda _: None)
    code, out, err = ended(main, capsys, "solve", *half_on_tensorrt)
    assert not code
    assert json.loads(out)["engines_built"] is None
    assert "engines of b are not checked: to build engines here, TensorRT-RTX must" in err


@pytest.mark.usefixtures("rtx")
def test_nodes_whose_engine_is_tensorrt_are_checked_unless_another_engine_is_given(
    half_on_tensorrt: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = solved(capsys, *half_on_tensorrt, engine=None)
    assert code == 2
    assert json.loads(out)["error"].startswith("device 'b': ")
    assert "cannot build layer 'last' (LpPool)" in out
    code, out, _ = solved(capsys, *half_on_tensorrt, engine="onnxruntime")
    assert code == 0
    assert json.loads(out)["engines_built"] is None


@pytest.mark.usefixtures("rtx")
def test_a_plan_whose_engines_can_be_built_is_printed_with_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = (str(DIGITS / "digits.onnx"), "--devices", "3", "--strategy", "sequential", "--json")
    code, out, _ = solved(capsys, *given)
    assert code == 0
    data: dict[str, Any] = json.loads(out)
    engines = data["engines_built"]
    assert engines["library"].startswith("TensorRT-RTX ")
    assert engines["compute_capability"] == "8.6"
    assert [subnet["phase"] for subnet in engines["subnets"]] == [
        "device1/0", "device2/0", "device3/0"
    ]  # fmt: skip
    assert all(1000 < subnet["engine_bytes"] < 1e6 for subnet in engines["subnets"])
    assert 0 < sum(subnet["seconds"] for subnet in engines["subnets"]) < 60


@pytest.mark.usefixtures("rtx")
@pytest.mark.parametrize(
    ("layer", "shape", "words"),
    [
        (
            helper.make_node("LpPool", ["t3"], ["y"], "last", kernel_shape=[8, 8], p=3),
            (1, 3, 1, 1),
            "cannot build layer 'last' (LpPool): Only L1 and L2 normalization are supported; pin",
        ),
        (
            helper.make_node(
                "ConvTranspose", ["t3", "w"], ["y"], "last", strides=[3, 1], dilations=[2, 1]
            ),
            (1, 4, 24, 9),
            "device 'b', layer 'last': subnet ",
        ),
    ],
    ids=["parser", "builder"],
)
def test_a_layer_that_tensorrt_cannot_build_ends_in_one_sentence_and_no_plan(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    layer: onnx.NodeProto,
    shape: tuple[int, ...],
    words: str,
) -> None:
    model = write_stack(tmp_path / "stack.onnx", layer, shape)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("model: stack.onnx\nnodes: [{name: a}, {name: b}]\nstrategy: sequential\n")
    save = tmp_path / "plan"
    code, out, sentence = solved(capsys, model, "--cluster", str(cluster), "--save", str(save))
    assert (code, out) == (2, "")
    assert sentence.startswith("csdf-edge partition: device 'b'")
    assert words in sentence
    assert not save.exists()


@pytest.mark.usefixtures("rtx")
def test_only_the_devices_that_run_tensorrt_are_checked(tmp_path: Path) -> None:
    pool = helper.make_node("LpPool", ["t3"], ["y"], "last", kernel_shape=[8, 8], p=3)
    model = cnn.read(write_stack(tmp_path / "stack.onnx", pool, (1, 3, 1, 1)))
    devices = tuple(map(Device, NAMES))
    places = {"conv0": "a", "conv1": "b", "conv2": "b", "last": "c"}
    plan = make_plan(model.network, model.digest, devices, places, strategy="", explanation="")
    built = check_tensorrt(model, plan, ("a", "b"), lambda _done, _all: None)
    assert [subnet.phase for subnet in built.subnets] == ["a/0", "b/0"]
    assert str(built).endswith("for compute capability 8.6; built, not run")
    assert check_tensorrt(model, plan, (), lambda _done, _all: None).subnets == ()
    layer = r"device 'c': subnet last: TensorRT-RTX .* cannot build layer 'last' \(LpPool\)"
    with pytest.raises(BadInputError, match=layer):
        check_tensorrt(model, plan, NAMES, lambda _done, _all: None)
