"""A GPU and the CPU of one machine compute one pipeline, which goes on without each of them.

It needs an NVIDIA GPU and onnxruntime-gpu (`make test-cuda`); OpenVINO has a node on the CPU, too,
where it is installed.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from launcher.run.processes import start_agents
from nodes.executors.onnx.providers.probing import devices_of
from nodes.executors.onnx.providers.table import CUDA
from nodes.executors.openvino.engine import OpenVinoEngine
from nodes.protocol.messages import EngineChoice
from tests.launcher_runtime.clusters import RandomFrames, make_cluster
from tests.launcher_runtime.test_recovery import FRAMES, Dealer, Strikes, check, options

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PLACES = (
    EngineChoice("onnxruntime", "gpu"),
    EngineChoice("onnxruntime", "cpu"),
    *(() if OpenVinoEngine().missing() else (EngineChoice("openvino", "cpu"),)),
)


@pytest.mark.parametrize("lost", PLACES, ids=lambda place: f"{place.engine}-{place.device}")
def test_a_pipeline_of_gpu_and_cpu_survives_the_loss_of_each(
    tmp_path: Path, lost: EngineChoice
) -> None:
    gpus, why = devices_of(CUDA)
    if not gpus:
        pytest.skip(why)
    cluster = make_cluster(tmp_path, nodes=len(PLACES))
    nodes = tuple(
        replace(node, engine=place) for node, place in zip(cluster.nodes(), PLACES, strict=True)
    )
    victim = nodes[PLACES.index(lost)].name
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
    left = {(choice.engine, choice.device) for choice in result.engines.values()}
    assert left == {(place.engine, place.device) for place in PLACES if place != lost}
