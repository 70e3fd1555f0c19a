"""Where memory is short a subnet is optimised with less of it, and computes the same."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS, held_bytes, some_inputs
from nodes.executors.onnx import runtime as onnx_runtime
from nodes.executors.onnx.file import inspect
from nodes.executors.onnx.optimise import OWN_BYTES, needed_bytes
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess
from tests.nodes.executors.test_onnx_runtime import wide


def entries(tmp_path: Path) -> list[bool]:
    return [Job.is_light_key(path.name) for path in (tmp_path / "derived").iterdir()]


def test_what_a_subnet_takes_follows_from_its_weights(tmp_path: Path) -> None:
    weight_bytes, proto = wide(megabytes=16)
    needed = needed_bytes(inspect(models.save(proto, tmp_path)))
    assert OWN_BYTES + 1.5 * weight_bytes <= needed <= OWN_BYTES + 1.6 * weight_bytes


def test_bytes_that_look_like_the_size_of_a_weight_are_none(tmp_path: Path) -> None:
    _, proto = wide(megabytes=1)
    path = models.save(proto, tmp_path)
    needed = needed_bytes(inspect(path))
    proto.graph.node[0].doc_string = "\n\x06length\x12\x0c999999999999"
    assert needed_bytes(inspect(models.save(proto, tmp_path))) == needed


def test_without_room_it_is_optimised_lightly_and_computes_the_same(
    cpu: OnnxRuntimeExecutor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    weight_bytes, proto = wide(megabytes=8)
    graph = models.save(proto, tmp_path)
    with monkeypatch.context() as short, caplog.at_level(logging.WARNING):
        short.setattr(onnx_runtime, "room_bytes", lambda: OWN_BYTES)
        cpu.prepare([graph], OPTIONS)
    assert "with less memory, which computes more slowly" in caplog.text
    assert entries(tmp_path) == [True]
    before = held_bytes("RssAnon")
    subnet = cpu.load(graph, OPTIONS)  # with room for more: what is there is used
    inputs = some_inputs(subnet)
    computed = subnet.run(inputs)["y"]
    assert held_bytes("RssAnon") - before < weight_bytes / 2
    assert entries(tmp_path) == [True]
    whole = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    expected = whole.run(None, inputs)[0]
    np.testing.assert_allclose(computed, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.slow
def test_what_a_killed_child_had_not_done_another_does_lightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, begun = subprocess.Popen, []

    def killed_at_first(*arguments, **options):
        begun.append(real(*arguments, **options))
        if len(begun) == 1:
            os.kill(begun[0].pid, signal.SIGKILL)
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", killed_at_first)
    child = PreparingProcess(
        "onnxruntime", "nodes.executors.onnx.optimise:prepare", PreparedFiles(tmp_path / "derived")
    )
    job = Job(models.save(models.residual(), tmp_path), "s", "onnxruntime-1")
    done: list[Job] = []
    with caplog.at_level(logging.WARNING):
        child.prepare([job], OPTIONS, done.append)
    assert (done, entries(tmp_path), len(begun)) == ([job], [True], 2)
    assert "was killed, most likely for want of memory" in caplog.text
