"""Everybody computes the digits network, in parts, on emulated boards."""

import os
from pathlib import Path

import pytest

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.peers.compare import Found, compare
from benchmarks.peers.others import torch_version

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
TORCH = os.environ.get("TORCH_PYTHON", "")
CONFIG = LabConfig(
    name=f"p{os.getpid() % 10**7}",
    defaults=BoardConfig(cpu=0.5),
    devices=(DeviceConfig(count=2),),
    cluster={"model": str(DIGITS), "strategy": "sequential"},
)


def children() -> set[str]:
    """The processes that this one has started and that have not ended."""
    found = Path("/proc/self/task").glob("*/children")
    return {child for path in found for child in path.read_text().split()}


def compared(torch: str | None) -> Found:
    missing = machine.look(CONFIG).missing
    if missing:
        pytest.skip(f"boards cannot be emulated here: {'; '.join(missing)}")
    before = children()
    with Lab(CONFIG) as lab:
        found = compare(lab, 1, 0.0, torch)
        left = children() - before
    assert not left  # the laboratory's agents are nobody's children
    for turns in found.turns.values():
        assert len(turns) == 1
        assert turns[0].rate > 0
        assert turns[0].difference < 1e-5
    return found


@pytest.mark.slow
@pytest.mark.namespaces
def test_ours_a_script_and_one_onnx_runtime_compute_the_same() -> None:
    assert list(compared(None).turns) == ["csdf-edge", "pyzmq script", "one ONNX Runtime"]


@pytest.mark.slow
@pytest.mark.namespaces
@pytest.mark.skipif(not TORCH, reason="TORCH_PYTHON names no Python that has torch")
def test_torch_computes_the_same() -> None:
    assert "torch pipelining" in compared(TORCH).turns


def test_a_python_without_torch_is_noticed() -> None:
    assert torch_version("no-such-python") is None
