"""The probes are networks that ONNX and the agent's engine take as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from nodes.executors.base import LoadOptions, LoadsUnprepared
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.synthetic_inputs import synthetic_input
from nodes.measuring.probes import Probe, probes


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_a_probe_is_a_valid_network(probe: Probe) -> None:
    onnx.checker.check_model(onnx.load_from_string(probe.content), full_check=True)


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_a_probe_is_computed_unprepared_as_it_is_prepared(probe: Probe, tmp_path: Path) -> None:
    graph = tmp_path / "probe.onnx"
    graph.write_bytes(probe.content)
    executor = OnnxRuntimeExecutor(tmp_path / "cache")
    assert isinstance(executor, LoadsUnprepared)
    results = []
    for load in (executor.load, executor.load_unprepared):
        subnet = load(graph, LoadOptions())
        given = {n: synthetic_input(s.dtype, s.shape) for n, s in subnet.inputs.items()}
        results.append(subnet.run(given)["y"])
        subnet.close()
    executor.close()
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
