"""An agent on emulated ARM and one on this machine compute networks together, with keys.

`make test-arm64` runs this file. Pytest does not collect it by itself, because
`tests/arm64/environment.sh` needs root, and minutes to make its environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from launcher.commands.make_keys import make_keys
from launcher.run.request import Request
from launcher.streaming.live_cluster import open_cluster
from tests.launcher import kinds
from tests.launcher_runtime.clusters import RandomFrames, free_port, write_network
from tests.launcher_runtime.test_starting_daemons import Said

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(__file__).with_name("environment.sh")
LIMIT_S = 600

PC, BOARD = "pc", "board"
PYTHON = {PC: [sys.executable], BOARD: [str(ENVIRONMENT), str(ROOT / ".venv/bin/python")]}

NETWORKS = ("digits", "squeezenet", "mobilenet", "8-bit")
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
        """The cluster file, with patience for an agent that is emulated."""
        nodes = [
            {"name": name, "address": address, "host": name, "memory": "2GB"}
            for name, address in self.addresses.items()
        ]
        path = self.folder / "cluster.yaml"
        patience = {"run": {"connect_timeout_s": 120}, "recovery": {"heartbeat_s": 20}}
        path.write_text(json.dumps({"nodes": nodes, "keys": "keys", **patience, **keys}))
        return path

    def launch(self, *arguments: str) -> tuple[int, dict[str, object]]:
        """Run `launch` with these arguments and `--json`."""
        done = subprocess.run(
            [str(Path(sys.executable).parent / "launch"), *arguments, "--json"],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        found = Cluster(tmp_path_factory.mktemp("mixed"), stack)
        for name in PYTHON:
            found.start(name)
        yield found


def model(name: str, folder: Path) -> tuple[str, str]:
    """A network and its input, as `cluster.yaml` names them."""
    match name:
        case "digits":
            digits = ROOT / "examples" / "digits"
            return str(digits / "digits.onnx"), str(digits / "test_images.npy")
        case "squeezenet":
            return "onnx-wheel:squeezenet", "random"
        case "mobilenet":
            return str(ROOT / "tests/fixtures/models/MobileNetV2.onnx"), "random"
    frames = folder / "frames"
    frames.mkdir(exist_ok=True)
    for key, array in kinds.frames("qdq").items():
        np.save(frames / f"{key}.npy", array)
    return str(kinds.write(folder / "qdq.onnx", "qdq")), f"{frames}/*.npy"


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_both_compute_what_the_whole_network_does(
    cluster: Cluster, name: str, strategy: str
) -> None:
    network, given = model(name, cluster.folder)
    path = cluster.write(model=network, input=given, strategy=strategy, frames=3, batch=1)
    code, report = cluster.launch(str(path))
    assert code == 0, report
    assert report["agrees"]
    if strategy != "auto":  # which may find that one node is enough
        assert {node["name"] for node in report["nodes"]} == set(PYTHON)
    if name != "8-bit":  # of which a rounding that falls the other way is a whole step
        assert float(str(report["max_relative_error"])) <= 1e-4


def test_the_doctor_finds_no_error(cluster: Cluster) -> None:
    path = cluster.write(model="onnx-wheel:squeezenet", input="random")
    code, found = cluster.launch("doctor", str(path))
    assert code == 0, found["findings"]


@pytest.mark.slow
def test_the_agent_on_arm_is_killed_and_returns(cluster: Cluster) -> None:
    network = write_network(cluster.folder / "net.onnx", layers=9, channels=64)
    path = cluster.write(model=str(network), strategy="sequential", objective="period")
    session = ort.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    frames, said, results = RandomFrames(16), Said(), []

    def endless() -> Iterator[dict[str, np.ndarray]]:
        for number in range(100_000):
            if said.has("is back"):
                return
            yield dict(frames[number % 16])

    with open_cluster(Request(path), said, most=16) as live:
        for result in live.stream(endless()):
            results.append(next(iter(result.values())))
            if len(results) == 20:
                cluster.kill(BOARD)
                cluster.start(BOARD)
    assert said.has("is back"), said.texts
    wanted = [session.run(None, dict(frames[number]))[0] for number in range(16)]
    for number, got in enumerate(results):
        np.testing.assert_allclose(got, wanted[number % 16], rtol=1e-4, atol=1e-5)
