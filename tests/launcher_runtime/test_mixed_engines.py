"""One pipeline computes with several engines, and goes on without each of them in turn.

It needs OpenVINO (`make test-openvino`); TVM has a node too where it is installed.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from launcher.run.processes import start_agents
from nodes.executors.tvm.engine import TvmEngine
from nodes.protocol.messages import EngineChoice
from tests.launcher_runtime.clusters import RandomFrames, make_cluster
from tests.launcher_runtime.test_recovery import FRAMES, Dealer, Strikes, check, options

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(
        find_spec("openvino") is None, reason="OpenVINO is not installed: `make test-openvino`"
    ),
]

ENGINES = ("onnxruntime", "openvino", *(() if TvmEngine().missing() else ("tvm",)))


@pytest.mark.parametrize("lost", ENGINES)
def test_a_pipeline_of_several_engines_survives_the_loss_of_each(tmp_path: Path, lost: str) -> None:
    cluster = make_cluster(tmp_path, nodes=len(ENGINES))
    nodes = tuple(
        replace(node, engine=EngineChoice(engine, "cpu"))
        for node, engine in zip(cluster.nodes(), ENGINES, strict=True)
    )
    victim = nodes[ENGINES.index(lost)].name
    replan = Dealer(cluster, tmp_path / "again")
    with start_agents(nodes, tmp_path / "cache") as agents:
        take = Strikes({20: (agents[victim].pid, signal.SIGKILL)})
        result = cluster.run(
            RandomFrames(FRAMES),
            take,
            options(replan, tmp_path / "cache"),
            nodes=nodes,
            agents=agents,
        )
    cluster.check(take.results.outputs, FRAMES)
    check(result, (victim,))
    left = {choice.engine for choice in result.engines.values()}
    assert left == set(ENGINES) - {lost}
