"""An agent on the CPU, which has given up all files but its own, computes with an engine."""

from __future__ import annotations

from pathlib import Path

import zmq

from csdf_edge.testing import executor_models as models
from nodes.protocol.messages import Deployed, Start
from tests.nodes.deploying import Host, Launcher, line
from tests.nodes.speaker import AgentProcess


def compute_in_a_restricted_agent(folder: Path, engine: str, described: str) -> None:
    """Stream frames through an agent with `engine`, whose description starts with `described`."""
    agent = AgentProcess(folder / "cache", "--name", "a", "--engine", engine, "--device", "cpu")
    context = zmq.Context()
    launcher, host = Launcher(context, agent.control), Host(context, agent.data)
    try:
        network = line(folder, models.residual())
        assert launcher.open_session().engine.startswith(described)
        launcher.upload(network.blobs)
        assert isinstance(launcher.deploy(network.deployment(1)), Deployed)
        launcher.say(Start(1))
        host.stream(network, 1, frames=3)
    finally:
        launcher.close()
        host.close()
        context.destroy(0)
        agent.end()
