"""What each node computes with: found on its agent, or refused before a search."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.commands.launch import main
from launcher.config.load import Cluster, load_cluster
from launcher.errors import BadInputError
from launcher.plan.devices import NO_FACTS, devices_of
from launcher.plan.engines import check_precisions, engines_of, with_declared_memory
from nodes.executors.base import WORKSPACE
from nodes.executors.onnx.sessions import SPINNING
from nodes.protocol.messages import (
    PROTOCOL,
    DeviceOffer,
    EngineChoice,
    EngineMemory,
    EngineOffer,
    EngineOption,
    Welcome,
)
from partition.devices import ONNX_RUNTIME, EngineOverhead
from tests.launcher.launches import ended
from tests.launcher.models import write_branches

BOARD = (
    EngineOffer("tensorrt", "", (DeviceOffer("gpu", ("fp32", "fp16")),), (WORKSPACE,)),
    EngineOffer("onnxruntime", "", (DeviceOffer("cpu"),), (SPINNING,)),
    EngineOffer("tvm", "it is not installed: `pip install apache-tvm`"),
)


def cluster_of(folder: Path, *nodes: str, keys: str = "") -> Cluster:
    write_branches(folder / "branches.onnx")
    path = folder / "cluster.yaml"
    lines = "".join(f"  - {{name: n{number}, {node}}}\n" for number, node in enumerate(nodes))
    path.write_text(f"model: branches.onnx\n{keys}nodes:\n{lines}")
    return load_cluster(path)


def welcome(node: str) -> Welcome:
    return Welcome(PROTOCOL, node, "0", "", "e", "m", 4, 1, (), None, BOARD)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("engine: auto", EngineChoice("tensorrt", "gpu")),
        ("device: cpu", EngineChoice("onnxruntime", "cpu")),
        ("device: 'gpu:0'", EngineChoice("tensorrt", "gpu")),
        ("engine: onnxruntime", EngineChoice("onnxruntime", "cpu")),
        ("precision: fp16", EngineChoice("tensorrt", "gpu", "fp16")),
        (
            "engine_options: {workspace_bytes: 4096}",
            EngineChoice("tensorrt", "gpu", "fp32", (EngineOption("workspace_bytes", "4096"),)),
        ),
    ],
)
def test_what_is_left_open_is_the_first_offer_that_has_the_rest(
    tmp_path: Path, asked: str, found: EngineChoice
) -> None:
    cluster = cluster_of(tmp_path, asked)
    assert engines_of(cluster, {"n0": welcome("n0")}) == {"n0": found}


@pytest.mark.parametrize(
    ("asked", "key", "says"),
    [
        ("engine: tvm", "engine", r"cannot use the engine tvm: .*pip install apache-tvm"),
        ("engine: abacus", "engine", r"has no engine 'abacus'; .*install the package"),
        (
            "device: npu",
            "device",
            r"has no device 'npu' for tensorrt or onnxruntime, only gpu, cpu",
        ),
        ("device: 'gpu:1'", "device", "has no device 'gpu:1'"),
        (
            "precision: int8",
            "precision",
            "int8: tensorrt on gpu has fp32, fp16; onnxruntime on cpu",
        ),
        ("device: cpu, precision: fp16", "precision", "onnxruntime on cpu has fp32; choose"),
        ("engine_options: {beads: 3}", "engine_options", "no engine option 'beads' for tensorrt"),
        (
            "engine_options: {workspace_bytes: 1.5}",
            "engine_options",
            r"option workspace_bytes of tensorrt must be a whole number from 1 to 1\d+, not '1.5'",
        ),
        (
            "device: cpu, engine_options: {allow_spinning: perhaps}",
            "engine_options",
            "option allow_spinning of onnxruntime must be true or false, not 'perhaps'",
        ),
    ],
)
def test_what_a_node_lacks_is_named_with_file_line_key_and_remedy(
    tmp_path: Path, asked: str, key: str, says: str
) -> None:
    cluster = cluster_of(tmp_path, "engine: auto", asked)
    with pytest.raises(BadInputError, match=rf"line 4, nodes\[1\].{key}: node 'n1' .*{says}"):
        engines_of(cluster, {node: welcome(node) for node in ("n0", "n1")})


def test_a_precision_that_changes_results_needs_a_tolerance(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"nodes\[0\].precision: fp16 changes .*tolerance: 0.01"
    ):
        check_precisions(cluster_of(tmp_path, "precision: fp16"))
    check_precisions(cluster_of(tmp_path, "precision: fp16", keys="tolerance: 0.01\n"))


def test_the_cpu_and_the_gpu_of_a_board_are_two_devices_of_one_host(tmp_path: Path) -> None:
    cluster = cluster_of(
        tmp_path,
        "address: 'tcp://board:5500', device: cpu",
        "address: 'tcp://board:5600', device: gpu",
        "address: 'tcp://gate:5500', host: one",
        "address: 'tcp://gate:5600', host: other",
    )
    devices = devices_of(cluster)
    assert [device.host for device in devices] == ["board", "board", None, None]
    assert [device.wire_is_free for device in devices] == [False, True, False, False]
    assert [device.host_cores for device in devices] == [2, 2, 1, 1]


def test_a_node_needs_the_memory_that_its_engine_takes(tmp_path: Path) -> None:
    """Built-in engines are known before an agent is asked; what an agent declares counts more."""
    cluster = cluster_of(tmp_path, "engine: onnxruntime", "engine: openvino", "engine: abacus")
    usual, built_in, unknown = (device.engine_overhead for device in devices_of(cluster))
    assert usual == unknown == ONNX_RUNTIME
    assert built_in.layer_bytes > usual.layer_bytes
    declared = EngineOffer("abacus", memory=EngineMemory(1, 2, 3))
    welcomes = {"n2": replace(welcome("n2"), engines=(declared,))}
    facts = with_declared_memory(NO_FACTS, {"n2": EngineChoice("abacus", "cpu")}, welcomes)
    assert [device.engine_overhead for device in devices_of(cluster, facts=facts)] == [
        usual, built_in, EngineOverhead(1, 2, 3)
    ]  # fmt: skip


@pytest.mark.parametrize("more", [(), ("--plan-only",)], ids=["run", "plan-only"])
def test_an_engine_that_a_node_lacks_is_refused_before_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    cluster_of(tmp_path, "engine: tensorrt", "threads: 1", keys="frames: 2\n")
    code, _, error = ended(main, capsys, tmp_path / "cluster.yaml", *more)
    assert code == 2
    assert "node 'n0': its agent could not start: this machine cannot use the engine" in error
    assert "pip install" in error
    assert "searching" not in error


@pytest.mark.parametrize("more", [(), ("--plan-only",)], ids=["run", "plan-only"])
def test_a_value_that_an_engine_refuses_ends_the_command_before_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    own = "engine: onnxruntime, device: cpu, engine_options: {allow_spinning: perhaps}"
    cluster_of(tmp_path, own, "threads: 1", keys="frames: 2\n")
    code, _, error = ended(main, capsys, tmp_path / "cluster.yaml", *more)
    assert code == 2
    assert (
        "line 4, nodes[0].engine_options: node 'n0' cannot use the value given: the engine option "
        "allow_spinning of onnxruntime must be true or false, not 'perhaps'"
    ) in error
    assert "searching" not in error


def test_the_report_names_engine_device_and_precision_of_each_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = "engine: onnxruntime, device: cpu, engine_options: {allow_spinning: true}"
    cluster_of(tmp_path, own, "threads: 1", keys="frames: 2\nstrategy: sequential\n")
    code, out, error = ended(main, capsys, tmp_path / "cluster.yaml", "--json")
    assert code == 0, error
    assert "node n0 has onnxruntime: cpu (fp32)" in error
    used = [node for node in json.loads(out)["nodes"] if node["phases"]]
    assert [(node["engine"], node["device"], node["precision"]) for node in used] == [
        ("onnxruntime", "cpu", "fp32")
    ]


def test_a_plan_names_what_each_node_is_to_compute_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_of(tmp_path, "device: cpu", "threads: 1", keys="strategy: sequential\n")
    code, out, error = ended(main, capsys, tmp_path / "cluster.yaml", "--plan-only", "--json")
    assert code == 0, error
    asked, free = json.loads(out)["nodes"]
    assert (asked["engine"], asked["device"], asked["precision"]) == ("onnxruntime", "cpu", "fp32")
    assert asked["engine"] == free["engine"], "the agents were asked"
