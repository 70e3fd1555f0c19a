"""Engines that several test files of this folder load subnets with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from csdf_edge.testing import executor_models as models
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.protocol.messages import Deployed, Start
from tests.nodes.deploying import Host, line
from tests.nodes.speaker import AgentProcess


@pytest.fixture
def cpu(tmp_path: Path) -> Iterator[OnnxRuntimeExecutor]:
    executor = OnnxRuntimeExecutor(tmp_path / "derived")
    yield executor
    executor.close()


@pytest.fixture
def compute_in_a_restricted_agent(
    tmp_path: Path, start: Callable[..., AgentProcess], dial: Callable[..., Any]
) -> Callable[[str, str], None]:
    """Streams frames through an agent on the CPU that has given up all files but its own."""

    def compute(engine: str, described: str) -> None:
        agent = start("--name", "a", "--engine", engine, "--device", "cpu")
        launcher = dial(agent.control)
        network = line(tmp_path, models.residual())
        assert launcher.open_session().engine.startswith(described)
        launcher.upload(network.blobs)
        assert isinstance(launcher.deploy(network.deployment(1)), Deployed)
        launcher.say(Start(1))
        dial(agent.data, Host).stream(network, 1, frames=3)

    return compute
