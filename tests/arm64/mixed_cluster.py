"""An agent on emulated ARM and one on this machine compute networks together, with keys.

`make test-arm64` runs this file. Pytest does not collect it by itself, because
`tests/arm64/environment.sh` needs root, and minutes to make its environment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from launcher.commands.make_keys import make_keys
from tests.arm64.launches import ROOT, launch, model, stream_until_it_is_back, write_cluster
from tests.launcher_runtime.clusters import free_port, write_network

ENVIRONMENT = Path(__file__).with_name("environment.sh")

PC, BOARD = "pc", "board"
PYTHON = {PC: [sys.executable], BOARD: [str(ENVIRONMENT), str(ROOT / ".venv/bin/python")]}

NETWORKS = ("digits", "squeezenet", "MobileNetV2", "8-bit")
QUICK = (("digits", "auto"), ("8-bit", "vertical"))
WHOLE = [(name, s) for name in NETWORKS for s in ("auto", "vertical", "hybrid")]
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow, id="-".join(case))
    for case in WHOLE
]


class Cluster:
    """A node of each architecture in a folder, with keys, and their agents."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.addresses = {name: f"tcp://127.0.0.1:{free_port()}" for name in PYTHON}
        make_keys(folder / "keys", self.addresses)
        self.agents: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        """Start an agent, and wait until it is ready."""
        options = ["--listen", self.addresses[name], "--name", name]
        options += ["--keys", str(self.folder / "keys" / name), "--cache", str(self.folder / name)]
        agent = subprocess.Popen(
            [*PYTHON[name], "-m", "nodes.cli", *options],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        self.agents[name] = agent
        self._stack.callback(self.kill, name)
        assert agent.stderr is not None
        self._stack.callback(agent.stderr.close)
        said = before = ""
        while " ready: control " not in said:
            said = agent.stderr.readline()
            assert said, f"{name} ended with {agent.wait()}: {before}"
            before = said

    def kill(self, name: str) -> None:
        """Kill an agent; with the program that shut it in, its namespace of processes ends."""
        self.agents[name].kill()
        self.agents[name].wait()

    def write(self, **keys: object) -> Path:
        """Write the cluster file."""
        nodes = [
            {"name": name, "address": address, "host": name, "memory": "2GB"}
            for name, address in self.addresses.items()
        ]
        return write_cluster(self.folder, nodes, **keys)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(tmp_path_factory.mktemp("mixed"), stack)
        for name in PYTHON:
            found.start(name)
        yield found


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_both_compute_what_the_whole_network_does(
    cluster: Cluster, name: str, strategy: str
) -> None:
    network, given = model(name, cluster.folder)
    path = cluster.write(model=network, input=given, strategy=strategy, frames=3, batch=1)
    code, report = launch(str(path))
    assert code == 0, report
    assert report["agrees"]
    if strategy != "auto":  # which may find that one node is enough
        assert {node["name"] for node in report["nodes"]} == set(PYTHON)
    if name != "8-bit":  # of which a rounding that falls the other way is a whole step
        assert float(str(report["max_relative_error"])) <= 1e-4


def test_the_doctor_finds_no_error(cluster: Cluster) -> None:
    path = cluster.write(model="onnx-wheel:squeezenet", input="random")
    code, found = launch("doctor", str(path))
    assert code == 0, found["findings"]


@pytest.mark.slow
def test_the_agent_on_arm_is_killed_and_returns(cluster: Cluster) -> None:
    network = write_network(cluster.folder / "net.onnx", layers=9, channels=64)
    path = cluster.write(model=str(network), strategy="sequential", objective="period")

    def kill_and_start() -> None:
        cluster.kill(BOARD)
        cluster.start(BOARD)

    stream_until_it_is_back(path, network, kill_and_start)
