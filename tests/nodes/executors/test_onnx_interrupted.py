"""Runs that would take minutes are interrupted, between two layers or within a loop."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS, load, some_inputs
from nodes.executors.base import ExecutorError
from nodes.executors.onnx.file import inspect
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor, OnnxRuntimeSubnet
from nodes.executors.onnx.sessions import loading_options


def looping() -> onnx.ModelProto:
    """y = x + 1 + 1 + …, 2⁶² times, in a single layer."""
    flag, number = (TensorProto.BOOL, []), (TensorProto.FLOAT, [1])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["goes_on"], ["still"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes_on", *flag),
            helper.make_tensor_value_info("before", *number),
        ],
        [
            helper.make_tensor_value_info("still", *flag),
            helper.make_tensor_value_info("after", *number),
        ],
        [helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])],
    )
    loop = helper.make_node("Loop", ["turns", "begins", "x"], ["y"], "endless loop", body=body)
    weights = {"turns": np.array(2**62), "begins": np.array(True)}
    return models.model("looping", [loop], [("x", *number)], [("y", *number)], weights)


def endless(layers: int = 2000, side: int = 512) -> onnx.ModelProto:
    """Minutes of matrices, one layer after the other."""
    names = ["x", *(f"t{number}" for number in range(1, layers)), "y"]
    nodes = [helper.make_node("MatMul", [i, "w"], [o]) for i, o in itertools.pairwise(names)]
    square = (TensorProto.FLOAT, [side, side])
    weights = {"w": np.eye(side, dtype=np.float32)}
    return models.model("endless", nodes, [("x", *square)], [("y", *square)], weights)


def computed_s(thread: threading.Thread) -> float:
    """Seconds for which a thread of this process has had a CPU."""
    schedstat = Path(f"/proc/self/task/{thread.native_id}/schedstat")
    return int(schedstat.read_text().split()[0]) / 1e9


@pytest.mark.parametrize("proto", [looping(), endless()], ids=["a loop", "many layers"])
def test_a_run_without_end_is_interrupted_and_others_continue(
    tmp_path: Path, proto: onnx.ModelProto
) -> None:
    """Also in a loop, which is given to the engine directly: preparing tries it out first."""
    cpu = OnnxRuntimeExecutor(tmp_path / "cache")
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(),
        loading_options(onnxruntime, OPTIONS, optimised=True),
        providers=["CPUExecutionProvider"],
    )
    file = inspect(models.save(proto, tmp_path))
    long = OnnxRuntimeSubnet(onnxruntime, file, session, cpu._run_options, lambda _: None)
    errors: list[ExecutorError] = []

    def run() -> None:
        try:
            long.run(some_inputs(long))
        except ExecutorError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while computed_s(thread) < 0.1:
        os.sched_yield()
    cpu.interrupt()
    thread.join(10.0)
    assert not thread.is_alive()
    assert f"subnet {proto.graph.name}: " in str(errors[0])
    cpu.resume()
    subnet = load(cpu, models.residual(), tmp_path)
    assert subnet.run(some_inputs(subnet)).keys() == subnet.outputs.keys()
    cpu.close()


@pytest.mark.slow
def test_a_loop_without_end_ends_with_the_process_that_tries_it_out(tmp_path: Path) -> None:
    cpu = OnnxRuntimeExecutor(tmp_path / "cache")
    graph = models.save(looping(), tmp_path)
    errors: list[ExecutorError] = []

    def prepare() -> None:
        try:
            cpu.prepare([graph], OPTIONS)
        except ExecutorError as error:
            errors.append(error)

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    while not (children := list(cpu._child._children)):
        os.sched_yield()
    (child,) = children
    assert isinstance(child, subprocess.Popen)
    trying = 2.0  # seconds of a CPU: importing the engine takes less
    while int(Path(f"/proc/{child.pid}/schedstat").read_text().split()[0]) / 1e9 < trying:
        os.sched_yield()
    cpu.interrupt()
    thread.join(10.0)
    assert not thread.is_alive()
    assert "looping" in str(errors[0])
    assert child.returncode == -signal.SIGKILL
    cpu.close()
