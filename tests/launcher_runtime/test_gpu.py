"""A GPU and the CPU of one machine compute one pipeline, which goes on without each of them.

It needs an NVIDIA GPU and onnxruntime-gpu (`make test-cuda`).
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.run.processes import start_agents
from nodes.executors.onnx.providers.probing import devices_of
from nodes.executors.onnx.providers.table import CUDA
from nodes.protocol.messages import EngineChoice
from tests.launcher_runtime.clusters import RandomFrames, make_cluster
from tests.launcher_runtime.test_recovery import FRAMES, Dealer, Strikes, check, options

pytestmark = [pytest.mark.slow, pytest.mark.alone]

DEVICES = ("gpu", "cpu")


@pytest.mark.parametrize("lost", DEVICES)
def test_a_pipeline_of_gpu_and_cpu_survives_the_loss_of_each(tmp_path: Path, lost: str) -> None:
    gpus, why = devices_of(CUDA)
    if not gpus:
        pytest.skip(why)
    cluster = make_cluster(tmp_path, nodes=2)
    nodes = tuple(
        replace(node, engine=EngineChoice("onnxruntime", device))
        for node, device in zip(cluster.nodes(), DEVICES, strict=True)
    )
    victim = nodes[DEVICES.index(lost)].name
    with start_agents(nodes, tmp_path / "cache") as agents:
        take = Strikes({20: (agents[victim].pid, signal.SIGKILL)})
        result = cluster.run(
            RandomFrames(FRAMES),
            take,
            options(Dealer(cluster, tmp_path / "again"), tmp_path / "cache"),
            nodes=nodes,
            agents=agents,
        )
    cluster.check(take.results.outputs, FRAMES)
    check(result, (victim,))
    assert {choice.device for choice in result.engines.values()} == set(DEVICES) - {lost}
