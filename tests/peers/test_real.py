"""Everybody computes the digits network, in parts, on boards that are plain processes."""

import os
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.lab import DeviceConfig, Lab, LabConfig
from benchmarks.lab.traces import base_name
from benchmarks.peers.compare import compare
from benchmarks.peers.others import torch_version

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
TORCH = os.environ.get("TORCH_PYTHON", "")
CHOSEN = Namespace(torch_python=TORCH, microbatches=2, hwm=1, repetitions=1, seconds=0.0)


def children() -> set[str]:
    """The processes that this one has started and that have not ended."""
    found = Path("/proc/self/task").glob("*/children")
    return {child for path in found for child in path.read_text().split()}


def compared(tmp_path: Path, with_torch: bool):
    config = LabConfig(
        name="peerst",
        devices=(DeviceConfig(count=2),),
        cluster={"model": str(DIGITS), "strategy": "sequential"},
    )
    before = children()
    with Lab(config, plain=True, base=tmp_path / base_name()) as lab:
        found = compare(lab, CHOSEN, with_torch)
        left = children() - before
    assert found.missing == ("it was asked for plain processes",)
    assert not found.emulated
    assert not left  # the laboratory's agents are nobody's children
    for turns in found.turns.values():
        assert len(turns) == 1
        assert turns[0].rate > 0
        assert turns[0].difference < 1e-5
    return found


@pytest.mark.slow
def test_ours_a_script_and_one_onnx_runtime_compute_the_same(tmp_path):
    found = compared(tmp_path, with_torch=False)
    assert list(found.turns) == ["csdf-edge", "pyzmq script", "one ONNX Runtime"]
    assert {len(turns[0].memory) for turns in found.turns.values()} == {2, 1}


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="TORCH_PYTHON names no Python that has torch")
def test_torch_computes_the_same(tmp_path):
    assert "torch pipelining" in compared(tmp_path, with_torch=True).turns


def test_a_python_without_torch_is_noticed():
    assert torch_version("no-such-python") is None
