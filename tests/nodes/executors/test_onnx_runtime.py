"""ONNX Runtime: the contract on the CPU and, where there is one, on the GPU; cache and memory."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import (
    OPTIONS,
    EngineContract,
    held_bytes,
    load,
    some_inputs,
)
from nodes.executors.base import ExecutorError, LoadOptions
from nodes.executors.onnx.engine import OnnxRuntimeEngine
from nodes.executors.onnx.optimise import MODEL
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.onnx.sessions import (
    explain,
    loading_options,
)
from nodes.executors.preparing.process import PreparingProcess


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "derived"


@pytest.fixture
def cpu(cache: Path) -> Iterator[OnnxRuntimeExecutor]:
    executor = OnnxRuntimeExecutor(cache)
    yield executor
    executor.close()


@pytest.fixture
def no_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("optimised again")

    monkeypatch.setattr(PreparingProcess, "make", refuse)


class TestOnTheCpu(EngineContract):
    dtypes = ("float32", "float16", "float64", "int8", "int32", "int64", "uint8", "bool")
    device = "cpu"
    wrong_options: ClassVar = {"allow_spinning": "perhaps"}

    def engine(self) -> OnnxRuntimeEngine:
        return OnnxRuntimeEngine()


def test_a_border_of_zeros_is_no_border_of_a_maximum(
    cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    """ONNX Runtime's Pad_Fusion makes the maximum next to a border of zeros negative."""
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    proto = models.model(
        "padded",
        [
            helper.make_node("Pad", ["x", "pads"], ["padded"]),
            helper.make_node("MaxPool", ["padded"], ["y"], kernel_shape=[3, 3], strides=[2, 2]),
        ],
        [("x", TensorProto.FLOAT, (1, 1, 4, 4))],
        [("y", TensorProto.FLOAT, (1, 1, 2, 2))],
        {"pads": pads},
    )
    inputs = {"x": np.full((1, 1, 4, 4), -1, np.float32)}
    outputs = load(cpu, proto, tmp_path).run(inputs)
    np.testing.assert_array_equal(outputs["y"], models.evaluate(proto, inputs)["y"])


def test_what_is_quantised_twice_is_rounded_twice(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    """ONNX Runtime's DoubleQDQPairsRemover would round once, with a third scale."""
    scales = {"coarse": np.float32(0.05), "fine": np.float32(0.03)}
    nodes, before = [], "x"
    for scale in scales:
        for operator in ("QuantizeLinear", "DequantizeLinear"):
            after = "y" if len(nodes) == 3 else f"t{len(nodes)}"
            nodes.append(helper.make_node(operator, [before, scale, "zero"], [after]))
            before = after
    ports = [(name, TensorProto.FLOAT, (1, 256)) for name in ("x", "y")]
    proto = models.model("twice", nodes, ports[:1], ports[1:], {**scales, "zero": np.uint8(128)})
    given = np.linspace(-3, 3, 256, dtype=np.float32)[None]
    found = load(cpu, proto, tmp_path).run({"x": given})["y"]
    wanted = given
    for scale in scales.values():
        wanted = np.rint(wanted / scale) * scale
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# ------------------------------------------------------------------------------ the cache


def test_what_was_optimised_is_not_optimised_again(
    cpu: OnnxRuntimeExecutor, cache: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    graph = models.save(models.residual(), tmp_path)
    cpu.load(graph, OPTIONS)
    request.getfixturevalue("no_optimiser")
    cpu.prepare([graph], OPTIONS)
    cpu.load(graph, OPTIONS)
    OnnxRuntimeExecutor(cache).load(graph, LoadOptions(threads=2))


def test_the_weights_belong_to_the_key(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    """Also where the weight file is not named by its digest."""
    graph = models.save(models.residual(), tmp_path)
    weights = next(path for path in tmp_path.iterdir() if path != graph and path.is_file())
    graph.write_bytes(graph.read_bytes().replace(weights.name.encode(), b"w" * 64))
    weights = weights.rename(tmp_path / ("w" * 64))
    inputs = {"x": models.normal(0, 1, 16, 12, 12)}
    first = cpu.load(graph, OPTIONS).run(inputs)["y"]
    weights.write_bytes(bytes(len(weights.read_bytes())))
    second = cpu.load(graph, OPTIONS).run(inputs)["y"]
    assert not np.array_equal(first, second)


def _truncate(entry: Path) -> None:
    (entry / MODEL).write_bytes((entry / MODEL).read_bytes()[:100])


def _flip_a_bit(entry: Path) -> None:
    path = max(entry.iterdir(), key=lambda file: file.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _remove_the_model(entry: Path) -> None:
    (entry / MODEL).unlink()


def _garble_the_list(entry: Path) -> None:
    (entry / "entry.json").write_text('{"files": 3')


def _remove_the_list(entry: Path) -> None:
    (entry / "entry.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_bit,
        *(
            pytest.param(damage, marks=pytest.mark.slow)
            for damage in (_truncate, _remove_the_model, _garble_the_list, _remove_the_list)
        ),
    ],
)
def test_a_damaged_entry_is_made_again(
    cpu: OnnxRuntimeExecutor, cache: Path, tmp_path: Path, damage
) -> None:
    proto = models.residual()
    subnet = load(cpu, proto, tmp_path)
    inputs = some_inputs(subnet)
    expected = subnet.run(inputs)["y"]
    (entry,) = cache.iterdir()
    damage(entry)
    later = OnnxRuntimeExecutor(cache)
    np.testing.assert_array_equal(load(later, proto, tmp_path).run(inputs)["y"], expected)
    assert [path.name for path in cache.iterdir()] == [entry.name], "nothing else is left"


def test_an_entry_that_names_files_elsewhere_is_made_again(
    cpu: OnnxRuntimeExecutor, cache: Path, tmp_path: Path
) -> None:
    """Whoever shares the folder can have written it, with a digest that fits."""
    proto = models.residual()
    expected = load(cpu, proto, tmp_path).run({"x": np.ones((1, 16, 12, 12), np.float32)})["y"]
    (entry,) = cache.iterdir()
    model = onnx.load(entry / MODEL, load_external_data=False)
    (tmp_path / "secret").write_bytes(bytes((entry / "model.weights").stat().st_size))
    for tensor in model.graph.initializer:
        for said in tensor.external_data:
            if said.key == "location":
                said.value = "../../secret"
    (entry / MODEL).write_bytes(model.SerializeToString())
    size, crc = (entry / MODEL).stat().st_size, zlib.crc32((entry / MODEL).read_bytes())
    listed = json.loads((entry / "entry.json").read_text())
    listed["files"][MODEL] = [size, crc]
    (entry / "entry.json").write_text(json.dumps(listed))
    later = OnnxRuntimeExecutor(cache)
    assert later._cache.find(entry.name) == entry, "it looks intact"
    found = load(later, proto, tmp_path).run({"x": np.ones((1, 16, 12, 12), np.float32)})["y"]
    np.testing.assert_array_equal(found, expected)
    assert b"secret" not in (entry / MODEL).read_bytes()


def test_a_cache_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExecutorError, match=r"cache directory .* cannot be used"):
        OnnxRuntimeExecutor(tmp_path / "file" / "derived")


# ------------------------------------------------------------------------------ the child


def test_a_child_that_is_killed_is_reported(
    cpu: OnnxRuntimeExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen

    def killed(*arguments, **options):
        child = real(*arguments, **options)
        os.kill(child.pid, signal.SIGKILL)
        return child

    monkeypatch.setattr(subprocess, "Popen", killed)
    with pytest.raises(ExecutorError, match=r"residual0.* killed, most likely for want of memory"):
        load(cpu, models.residual(), tmp_path)


def test_what_is_interrupted_can_be_prepared_after_it_has_resumed(
    cpu: OnnxRuntimeExecutor, cache: Path, tmp_path: Path
) -> None:
    graph = models.save(models.residual(), tmp_path)
    cpu.interrupt()
    for use in (cpu.load, lambda graph, options: cpu.prepare([graph], options)):
        with pytest.raises(ExecutorError, match=r"residual0.* was stopped"):
            use(graph, OPTIONS)
    assert not list(cache.iterdir())
    cpu.resume()
    cpu.prepare([graph], OPTIONS)
    assert len(list(cache.iterdir())) == 1


def test_a_child_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """Its input closes before it has done its jobs, or was given any."""
    job = {
        "maker": "nodes.executors.onnx.optimise:prepare",
        "cache": str(tmp_path), "options": {}, "limit_bytes": None,
        "job": {"graph": "/nowhere", "subnet": "s", "key": "k"},
    }  # fmt: skip
    for request in ("", json.dumps(job) + "\n"):
        with subprocess.Popen(
            [sys.executable, "-m", "nodes.executors.preparing.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            child.communicate(request.encode(), timeout=30)


# ------------------------------------------------------------------------------ memory


def wide(megabytes: int) -> tuple[int, object]:
    """A subnet of two 1x1 convolutions with little activation and this much weight."""
    channels = int((megabytes * 2**20 / 4 / 2) ** 0.5)
    shape = [1, channels, 2, 2]
    weights = {f"w{n}": models.normal(n, channels, channels, 1, 1) for n in range(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["m"]),
        helper.make_node("Conv", ["m", "w1"], ["y"]),
    ]
    proto = models.model(
        "wide",
        nodes,
        [("x", TensorProto.FLOAT, shape)],
        [("y", TensorProto.FLOAT, shape)],
        weights,
    )
    return sum(array.nbytes for array in weights.values()), proto


@pytest.mark.alone
def test_weights_are_pages_of_a_file(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    weight_bytes, proto = wide(megabytes=16)
    graph = models.save(proto, tmp_path)
    del proto
    cpu.prepare([graph], OPTIONS)
    before = held_bytes("RssAnon")
    subnet = cpu.load(graph, OPTIONS)
    subnet.run(some_inputs(subnet))
    assert held_bytes("RssAnon") - before < weight_bytes / 4


@pytest.mark.alone
def test_closing_the_last_subnet_gives_activations_back(
    cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    """All but what fits into the arena's first region, which the next subnets use again."""
    shape = [1, 160, 256, 256]
    tensor_bytes = 4 * 160 * 256 * 256
    names = ["x", "a", "b", "y"]
    nodes = [helper.make_node("Sqrt", [i], [o]) for i, o in itertools.pairwise(names)]
    proto = models.model(
        "large", nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)]
    )
    subnets = [load(cpu, proto, tmp_path), load(cpu, models.residual(), tmp_path)]
    subnets[1].run(some_inputs(subnets[1]))
    before = held_bytes("VmRSS")
    subnets[0].run({"x": np.zeros(shape, np.float32)})
    assert held_bytes("VmRSS") - before > tensor_bytes
    for subnet in subnets:
        subnet.close()
    assert held_bytes("VmRSS") - before < tensor_bytes / 2


# ------------------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (
            "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for "
            "Acos(7) node with name 'n1'",
            'no kernel for operator Acos (opset 7, node "n1")',
        ),
        (
            "[ONNXRuntimeError] : 10 : INVALID_GRAPH : This is an invalid model. In Node, "
            '("n1", Foo, "", -1) : ("x": tensor(float),) -> ("y": tensor(float),) , Error No Op '
            "registered for Foo with domain_version of 13",
            "does not know operator Foo (opset 13); install a newer onnxruntime",
        ),
        (
            "[ONNXRuntimeError] : 1 : FAIL : Fatal error: com.acme:Foo(-1) is not a registered "
            "function/op",
            "does not know operator com.acme:Foo",
        ),
        (
            "[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Failed to load model because protobuf "
            "parsing failed.",
            "is truncated; send the subnet again",
        ),
        ("[ONNXRuntimeError] : 1 : FAIL : Something\n else.", "Something else"),
        ("plain", "plain"),
    ],
)
def test_engine_messages_become_clauses(message: str, says: str) -> None:
    assert says in explain(message)


def test_options_are_checked() -> None:
    with pytest.raises(ExecutorError, match="at least one thread, not 0"):
        LoadOptions(threads=0)


def test_what_was_looked_through_as_onnx_is_read_as_nothing_else(tmp_path: Path) -> None:
    """ONNX Runtime would take bytes for its own format by their look, whatever else they hold."""
    graph = models.save(models.residual(), tmp_path)
    writing = onnxruntime.SessionOptions()
    writing.optimized_model_filepath = str(tmp_path / "own")
    writing.add_session_config_entry("session.save_model_format", "ORT")
    writing.log_severity_level = 4
    cpu_only = {"providers": ["CPUExecutionProvider"]}
    onnxruntime.InferenceSession(str(graph), writing, **cpu_only)
    own = (tmp_path / "own").read_bytes()
    onnxruntime.InferenceSession(own, **cpu_only)
    options = loading_options(onnxruntime, LoadOptions(), optimised=True)
    with pytest.raises(Exception, match="protobuf parsing failed"):
        onnxruntime.InferenceSession(own, options, **cpu_only)


def test_a_run_raises_nothing_inside_the_engine(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    """ONNX Runtime 1.31 looks for an entry of the run's options, and catches a C++ exception."""
    subnet = load(cpu, models.residual(), tmp_path)
    inputs, raised = some_inputs(subnet), []

    def note(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception" and argument[0] is not StopIteration:
            raised.append((frame.f_code.co_name, argument[0]))
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        subnet.run(inputs)
    finally:
        sys.settrace(before)
    assert raised == []


def test_a_run_refers_to_no_array_afterwards(cpu: OnnxRuntimeExecutor, tmp_path: Path) -> None:
    subnet = load(cpu, models.residual(), tmp_path)
    inputs = some_inputs(subnet)
    given = {name: weakref.ref(array) for name, array in inputs.items()}
    made = {name: weakref.ref(array) for name, array in subnet.run(inputs).items()}
    inputs.clear()
    assert [reference() for reference in (*given.values(), *made.values())] == [None] * 2
