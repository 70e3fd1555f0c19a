"""One pipeline computes with several engines or devices, and continues without each in turn.

Some need OpenVINO (`make test-openvino`), and TVM has a node too where it is installed; others an
NVIDIA GPU and onnxruntime-gpu (`make test-cuda`).
"""

from __future__ import annotations

import signal
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from launcher.run.processes import start_agents
from nodes.executors.onnx.providers.probing import devices_of
from nodes.executors.onnx.providers.table import CUDA
from nodes.executors.openvino.engine import OpenVinoEngine
from nodes.executors.tvm.engine import TvmEngine
from nodes.protocol.messages import EngineChoice
from tests.launcher_runtime.clusters import RandomFrames, make_cluster
from tests.launcher_runtime.test_recovery import FRAMES, Dealer, Strikes, check, options

pytestmark = pytest.mark.slow

GPU = EngineChoice("onnxruntime", "gpu")
ONNX, OPENVINO, TVM = (EngineChoice(e, "cpu") for e in ("onnxruntime", "openvino", "tvm"))
ENGINES = (ONNX, OPENVINO, *(() if TvmEngine().missing() else (TVM,)))
DEVICES = (GPU, ONNX, *(() if OpenVinoEngine().missing() else (OPENVINO,)))


@pytest.mark.parametrize(
    ("places", "lost"),
    [(places, lost) for places in (ENGINES, DEVICES) for lost in places],
    ids=lambda given: f"{given.engine}-{given.device}" if isinstance(given, EngineChoice) else "",
)
def test_a_pipeline_survives_the_loss_of_each(
    tmp_path: Path, places: tuple[EngineChoice, ...], lost: EngineChoice
) -> None:
    if OPENVINO in places and find_spec("openvino") is None:
        pytest.skip("OpenVINO is not installed: `make test-openvino`")
    if GPU in places:
        gpus, why = devices_of(CUDA)
        if not gpus:
            pytest.skip(why)
    cluster = make_cluster(tmp_path, nodes=len(places))
    nodes = tuple(
        replace(node, engine=place) for node, place in zip(cluster.nodes(), places, strict=True)
    )
    victim = nodes[places.index(lost)].name
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
    assert left == {(place.engine, place.device) for place in places if place != lost}
