"""OpenVINO: the contract and what is its own, where its wheel is installed.

`make test-openvino` installs it into its own environment. What needs no wheel is in
`test_openvino_words.py`.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import (
    OPTIONS,
    EngineContract,
    held_bytes,
    largest_error,
    load,
    some_inputs,
)
from nodes.executors.base import ComputesElsewhere, ExecutorError, LoadOptions, TensorSpec
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.openvino import subnet as openvino_subnet
from nodes.executors.openvino.engine import OpenVinoEngine
from nodes.executors.openvino.executor import OpenVinoExecutor
from nodes.executors.registry import open_executor
from tests.nodes.executors.test_onnx_interrupted import computed_s, endless
from tests.nodes.executors.test_onnx_runtime import wide
from tests.nodes.test_sandbox import is_offered

pytest.importorskip("openvino", reason="OpenVINO is not installed: `make test-openvino`")

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[OpenVinoExecutor]:
    executor = OpenVinoExecutor(tmp_path / "derived")
    yield executor
    executor.close()


class TestOnTheCpu(EngineContract):
    dtypes = ("float16", "float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool")

    def engine(self) -> OpenVinoEngine:
        return OpenVinoEngine()


def test_the_registry_knows_it(tmp_path: Path) -> None:
    executor = open_executor("openvino", tmp_path)
    assert executor.describe().startswith("OpenVINO 20")
    assert executor.describe().endswith("(CPU)")
    executor.close()


# ------------------------------------------------------------------------------ results


def test_what_openvinos_own_thread_computes_is_reported(
    engine: OpenVinoExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openvino_subnet, "SHORT_S", 0.0)  # every run is handed over
    _, proto = wide(megabytes=16)
    subnet = load(engine, proto, tmp_path)
    assert isinstance(subnet, ComputesElsewhere)
    inputs = some_inputs(subnet)
    before, spent_s = subnet.engine_times(), time.process_time()
    for _ in range(20):
        subnet.run(inputs)
    after, spent_s = subnet.engine_times(), time.process_time() - spent_s
    assert before.waited_s is not None
    assert after.waited_s is not None
    assert 0.3 * spent_s < after.computed_s - before.computed_s <= spent_s
    assert after.waited_s >= before.waited_s


def test_float32_is_computed_in_float32(engine: OpenVinoExecutor, tmp_path: Path) -> None:
    """OpenVINO's own choice would be bfloat16 where the processor has it: errors of 1e-3."""
    proto = models.residual(channels=64, size=16)
    subnet = load(engine, proto, tmp_path)
    inputs = some_inputs(subnet)
    expected = models.evaluate(proto, inputs)["y"]
    assert largest_error(subnet.run(inputs)["y"], expected) < 1e-5


def test_half_precision_changes_results_by_no_more_than_it_may(
    engine: OpenVinoExecutor, tmp_path: Path
) -> None:
    """Processors without it compute in float32."""
    proto = models.residual(channels=64, size=16)
    subnet = engine.load(models.save(proto, tmp_path), LoadOptions(precision="fp16"))
    inputs = some_inputs(subnet)
    assert subnet.outputs["y"].dtype == "float32"
    assert largest_error(subnet.run(inputs)["y"], models.evaluate(proto, inputs)["y"]) < 1e-2


def test_threads_change_no_result(engine: OpenVinoExecutor, tmp_path: Path) -> None:
    proto = models.residual()
    graph = models.save(proto, tmp_path)
    one, two = (engine.load(graph, LoadOptions(threads=count)) for count in (1, 2))
    inputs = some_inputs(one)
    assert largest_error(two.run(inputs)["y"], one.run(inputs)["y"]) < 1e-5


def test_one_thread_computes_with_one_thread(engine: OpenVinoExecutor, tmp_path: Path) -> None:
    """The caller's, once a run has been short."""
    subnet = load(engine, models.residual(channels=64, size=24), tmp_path)
    inputs = some_inputs(subnet)
    subnet.run(inputs)
    before_s, began_s = computed_s(threading.current_thread()), process_s()
    for _ in range(200):
        subnet.run(inputs)
    own_s = computed_s(threading.current_thread()) - before_s
    assert own_s > 0.9 * (process_s() - began_s)


def process_s() -> float:
    """Seconds for which all threads of this process have had CPUs."""
    tasks = Path("/proc/self/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def test_a_read_only_input_that_a_layer_could_overwrite_is_left_alone(
    engine: OpenVinoExecutor, tmp_path: Path
) -> None:
    shape = [1, 8, 16, 16]
    proto = models.model(
        "in_place",
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Exp", ["r"], ["y"])],
        [("x", FLOAT, shape)],
        [("y", FLOAT, shape)],
    )
    subnet = load(engine, proto, tmp_path)
    x = models.normal(0, *shape)
    before = x.copy()
    x.flags.writeable = False
    subnet.run({"x": x})
    np.testing.assert_array_equal(x, before)


def test_outputs_may_have_another_shape_in_every_run(
    engine: OpenVinoExecutor, tmp_path: Path
) -> None:
    proto = models.model(
        "places",
        [helper.make_node("NonZero", ["x"], ["z"]), helper.make_node("Neg", ["x"], ["y"])],
        [("x", FLOAT, [2, 3])],
        [("z", INT64, ["rank", "found"]), ("y", FLOAT, [2, 3])],
    )
    subnet = load(engine, proto, tmp_path)
    assert subnet.outputs["z"] == TensorSpec("int64", (), varies=True)
    kept = []
    for x in (np.eye(2, 3), np.ones((2, 3)), np.zeros((2, 3))):
        outputs = subnet.run({"x": x.astype(np.float32)})
        assert list(outputs) == ["z", "y"]
        kept.append((outputs["z"], np.array(np.nonzero(x))))
    for measured, expected in kept:
        np.testing.assert_array_equal(measured, expected)


def test_an_input_beyond_32_bits_is_refused_instead_of_changed(
    engine: OpenVinoExecutor, tmp_path: Path
) -> None:
    subnet = load(engine, models.transpose("int64"), tmp_path)
    largest = np.full((3, 5), 2**31 - 1)
    np.testing.assert_array_equal(subnet.run({"x": largest})["y"], largest.T)
    with pytest.raises(ExecutorError, match=r'transpose_int64: its input "x" has a number beyond'):
        subnet.run({"x": largest + 1})


def test_a_quantised_network_agrees_with_onnx_runtime(
    engine: OpenVinoExecutor, cpu: OnnxRuntimeExecutor, tmp_path: Path
) -> None:
    """To one step of the last quantiser: roundings differ."""
    step = 0.05
    scale, zero = np.array(step, np.float32), np.array(128, np.uint8)
    weights = np.random.default_rng(0).integers(-127, 127, (8, 8, 3, 3), np.int8)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("Conv", ["xd", "wd"], ["c"], pads=[1] * 4),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["cq"]),
        helper.make_node("DequantizeLinear", ["cq", "s", "z"], ["y"]),
    ]
    shape = [1, 8, 10, 10]
    constants = {
        "s": scale, "z": zero, "w": weights,
        "ws": np.array(0.001, np.float32), "wz": np.array(0, np.int8),
    }  # fmt: skip
    proto = models.model("qdq", nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], constants)
    inputs = {"x": models.normal(1, *shape)}
    measured, expected = (load(e, proto, tmp_path).run(inputs)["y"] for e in (engine, cpu))
    assert np.unique(expected).size > 10
    assert np.abs(measured - expected).max() <= 1.01 * step


# ------------------------------------------------------------------------------ refusals


def refused() -> list[tuple[onnx.ModelProto, str]]:
    image = [("x", FLOAT, [1, 3, 3])]
    det = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Det", ["r"], ["y"], name="the det"),
    ]
    weights = {"w": np.ones((2, 5, 3, 3), np.float32)}
    conv = [helper.make_node("Conv", ["x", "w"], ["y"], name="the conv")]
    text = TensorProto.STRING
    return [
        (
            models.model("unknown", det, image, [("y", FLOAT, [1])]),
            r"subnet unknown: OpenVINO \S+ cannot load it: it has no operator Det "
            r"\(layer 'the det'\); pin the layer to a node with another engine",
        ),
        (
            models.model(
                "wrong", conv, [("x", FLOAT, [1, 3, 4, 4])], [("y", FLOAT, None)], weights
            ),
            r"subnet wrong: .* it refuses layer 'the conv' \(Conv\): .*channel count",
        ),
        (
            models.model(
                "text",
                [helper.make_node("Identity", ["x"], ["y"])],
                [("x", text, [3])],
                [("y", text, [3])],
            ),
            r'subnet text: "x" is of OpenVINO\'s type string, which cannot be sent',
        ),
    ]


@pytest.mark.parametrize(
    ("proto", "says"), refused(), ids=["an operator", "a layer", "a type of tensors"]
)
def test_what_it_refuses_is_named(
    engine: OpenVinoExecutor, tmp_path: Path, proto: onnx.ModelProto, says: str
) -> None:
    with pytest.raises(ExecutorError, match=says) as caught:
        load(engine, proto, tmp_path)
    assert "src/" not in str(caught.value), "no place in OpenVINO's sources"
    assert list((tmp_path / "derived").iterdir()) == [], "it did not pass its trial"


def test_a_file_is_read_as_onnx_and_nothing_else(engine: OpenVinoExecutor, tmp_path: Path) -> None:
    """OpenVINO's own format is a text, by which it would recognise a file without a suffix."""
    graph = tmp_path / "graph"
    graph.write_text('<?xml version="1.0"?>\n<net name="own" version="11"></net>')
    with pytest.raises(ExecutorError, match="is not an ONNX file"):
        engine.load(graph, OPTIONS)


def test_its_telemetry_is_not_imported() -> None:
    script = (
        "import sys; from nodes.executors.openvino.compiler import import_openvino; "
        "import_openvino(); "
        "print([n for n, m in sys.modules.items() if m and n.startswith('openvino_telemetry')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "[]"


# ------------------------------------------------------------------------------ children


def test_what_was_tried_out_is_not_tried_again(
    engine: OpenVinoExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = models.save(models.residual(), tmp_path)
    engine.prepare([graph], OPTIONS)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("tried again")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    engine.load(graph, OPTIONS)
    later = OpenVinoExecutor(tmp_path / "derived")
    later.load(graph, LoadOptions(threads=2))
    with pytest.raises(AssertionError, match="tried again"):
        later.load(graph, LoadOptions(precision="fp16"))


CRASHING = """
import os, signal, sys
from nodes.executors.openvino import subnet
from nodes.executors.preparing import child

subnet.OpenVinoSubnet.try_out = lambda _: os.kill(os.getpid(), signal.SIGSEGV)
child.work(sys.stdin, sys.stdout)
"""


def test_a_subnet_with_which_it_crashes_costs_a_child_and_a_sentence(
    engine: OpenVinoExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = subprocess.Popen

    def crashing(_: object, **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, "-c", CRASHING], **options)

    monkeypatch.setattr(subprocess, "Popen", crashing)
    with pytest.raises(ExecutorError, match=r"subnet residual0: openvino crashed \(SIGSEGV\)"):
        load(engine, models.residual(), tmp_path)


READING = """
import sys
from nodes.executors.base import ExecutorError
from nodes.executors.openvino import subnet
from nodes.executors.preparing import child

def read(_):
    try:
        open(sys.argv[1])
    except OSError as error:
        raise ExecutorError(f"refused: {error.strerror}") from error

subnet.OpenVinoSubnet.try_out = read
child.work(sys.stdin, sys.stdout)
"""


@pytest.mark.skipif(not is_offered(), reason="this kernel offers no Landlock")
def test_its_child_opens_no_file_but_its_own(
    engine: OpenVinoExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    real = subprocess.Popen

    def reading(_: object, **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, "-c", READING, str(secret)], **options)

    monkeypatch.setattr(subprocess, "Popen", reading)
    with pytest.raises(ExecutorError, match="refused: Permission denied"):
        load(engine, models.residual(), tmp_path / "own")


# ------------------------------------------------------------------------------ interruption


def test_a_long_run_is_interrupted_between_two_layers_and_others_continue(
    engine: OpenVinoExecutor, tmp_path: Path
) -> None:
    long = load(engine, endless(layers=200), tmp_path / "long")
    inputs = some_inputs(long)
    began_s = process_s()
    long.run(inputs)
    whole_s = process_s() - began_s
    errors: list[ExecutorError] = []

    def run() -> None:
        try:
            long.run(inputs)
        except ExecutorError as error:
            errors.append(error)

    began_s = process_s()
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while process_s() - began_s < 0.1 * whole_s:
        threading.Event().wait(0.001)
    engine.interrupt()
    thread.join(10.0)
    assert not thread.is_alive()
    assert process_s() - began_s < 0.6 * whole_s
    assert "subnet endless: the run was interrupted" in str(errors[0])
    with pytest.raises(ExecutorError, match="subnet endless: the run was interrupted"):
        long.run(inputs)
    engine.resume()
    subnet = load(engine, models.residual(), tmp_path / "other")
    assert set(subnet.run(some_inputs(subnet))) == {"y"}


# ------------------------------------------------------------------------------ memory


def test_weights_are_in_memory_once(engine: OpenVinoExecutor, tmp_path: Path) -> None:
    """As anonymous copies in another layout; the pages of the file are dropped after loading."""
    load(engine, models.residual(), tmp_path)  # what the first subnet of all takes
    weight_bytes, proto = wide(megabytes=32)
    graph = models.save(proto, tmp_path / "wide")
    del proto
    engine.prepare([graph], OPTIONS)
    before_bytes = held_bytes("VmRSS")
    subnet = engine.load(graph, OPTIONS)
    subnet.run(some_inputs(subnet))
    assert held_bytes("VmRSS") - before_bytes < 1.1 * weight_bytes


def test_activations_of_several_subnets_take_the_room_of_one(
    engine: OpenVinoExecutor, tmp_path: Path
) -> None:
    shape = [1, 16, 512, 512]
    tensor_bytes = 4 * 16 * 512 * 512
    x = np.zeros(shape, np.float32)
    names = ["x", "a", "b", "c", "y"]
    nodes = [
        helper.make_node("AveragePool", [i], [o], kernel_shape=[3, 3], pads=[1] * 4)
        for i, o in itertools.pairwise(names)
    ]
    proto = models.model("pools", nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)])
    first = load(engine, proto, tmp_path)
    first.run({"x": x})
    before_bytes = held_bytes("VmRSS")
    subnets = [first, *(load(engine, proto, tmp_path) for _ in range(3))]
    for subnet in subnets:
        subnet.run({"x": x})
    assert held_bytes("VmRSS") - before_bytes < tensor_bytes


def test_closing_a_subnet_gives_its_memory_back(engine: OpenVinoExecutor, tmp_path: Path) -> None:
    load(engine, models.residual(), tmp_path).close()
    weight_bytes, proto = wide(megabytes=32)
    before_bytes = held_bytes("VmRSS")
    subnet = load(engine, proto, tmp_path / "wide")
    subnet.run(some_inputs(subnet))
    del proto
    subnet.close()
    assert held_bytes("VmRSS") - before_bytes < weight_bytes / 4


# ------------------------------------------------------------------------------ an agent


def test_a_restricted_agent_computes_with_it(
    compute_in_a_restricted_agent: Callable[[str, str], None],
) -> None:
    """What OpenVINO opens late, it finds among the programs that an agent may still open."""
    compute_in_a_restricted_agent("openvino", "OpenVINO")
