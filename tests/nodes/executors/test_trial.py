"""An engine that crashes on a subnet costs the child that prepares it, and a sentence.

The children here are real, and die of a real signal when they first run the subnet `bad`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from csdf_edge.testing import executor_models as models
from csdf_edge.testing.executor_contract import OPTIONS
from nodes.executors.base import ExecutorError
from nodes.executors.preparing.entries import Job, PreparedFiles
from nodes.executors.preparing.process import PreparingProcess

CRASHING = """
import os, signal, sys
from nodes.executors.preparing import child
from nodes.executors.onnx import optimise

real = optimise.try_out

def try_out(ort, subnet, model, options, *, packs, **more):
    if subnet == "bad" and (packs or sys.argv[1] == "always"):
        os.kill(os.getpid(), signal.SIGSEGV)
    real(ort, subnet, model, options, packs=packs, **more)

optimise.try_out = try_out
child.work(sys.stdin, sys.stdout)
"""


def crash(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Let children crash on `bad`: `always`, or only with weights that are `packed`."""
    real = subprocess.Popen

    def crashing(_: object, **options: object) -> subprocess.Popen[str]:
        return real([sys.executable, "-c", CRASHING, when], **options)

    monkeypatch.setattr(subprocess, "Popen", crashing)


def jobs(tmp_path: Path) -> list[Job]:
    graphs = [models.save(models.residual(), tmp_path / name) for name in ("first", "bad", "last")]
    return [Job(graph, graph.parent.name, f"onnxruntime-{graph.parent.name}") for graph in graphs]


def test_it_is_optimised_less_and_the_others_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    crash(monkeypatch, "packed")
    child = PreparingProcess(
        "onnxruntime", "nodes.executors.onnx.optimise:prepare", PreparedFiles(tmp_path / "derived")
    )
    done: list[Job] = []
    with caplog.at_level(logging.WARNING):
        child.prepare(jobs(tmp_path), OPTIONS, done.append)
    assert [job.subnet for job in done] == ["first", "bad", "last"]
    assert sorted(path.name for path in (tmp_path / "derived").iterdir()) == [
        "onnxruntime-bad-light",
        "onnxruntime-first",
        "onnxruntime-last",
    ]
    assert "subnet bad: onnxruntime crashed (SIGSEGV)" in caplog.text


def test_where_that_crashes_too_one_sentence_names_subnet_signal_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash(monkeypatch, "always")
    child = PreparingProcess(
        "onnxruntime", "nodes.executors.onnx.optimise:prepare", PreparedFiles(tmp_path / "derived")
    )
    wanted = jobs(tmp_path)
    done: list[Job] = []
    with pytest.raises(ExecutorError) as caught:
        child.prepare(wanted, OPTIONS, done.append)
    for part in ("subnet bad", "SIGSEGV", str(wanted[1].graph)):
        assert part in str(caught.value)
    assert [job.subnet for job in done] == ["first"]
    assert [path.name for path in (tmp_path / "derived").iterdir()] == ["onnxruntime-first"]


def test_what_cannot_compute_on_synthetic_inputs_is_not_published(tmp_path: Path) -> None:
    """Synthetic whole numbers are zeros, by which nothing can be divided; the error says so."""
    shape = (TensorProto.INT64, (4,))
    divide = helper.make_node("Div", ["a", "b"], ["c"])
    proto = models.model("d", [divide], [("a", *shape), ("b", *shape)], [("c", *shape)])
    child = PreparingProcess(
        "onnxruntime", "nodes.executors.onnx.optimise:prepare", PreparedFiles(tmp_path / "derived")
    )
    job = Job(models.save(proto, tmp_path), "divide", "onnxruntime-divide")
    with pytest.raises(
        ExecutorError,
        match=r"subnet divide: .* cannot run it: .*division by zero; this was a trial with a, b "
        r"set to 0: if the network needs another value, set it under `model: inputs:`",
    ):
        child.prepare([job], OPTIONS, lambda _: None)
    assert list((tmp_path / "derived").iterdir()) == []
