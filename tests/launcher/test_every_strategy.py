"""Every strategy is run by `launch` on four agents, not only computed: same results, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import yaml

from ga.strategies import STRATEGIES
from launcher.commands.launch import main
from tests.launcher.launches import done
from tests.launcher_runtime.clusters import SHAPE, daemons, write_network

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_searches")]

FRAMES = 9
REWRITING = {"horizontal", "tiles", "batch-split", "batch-split-paper", "replicated", "hybrid"}
"""These divide layers; `auto` and `runs` may."""

SIBLINGS = {
    *("vertical-paper", "vertical-paper-seeded", "exact-vertical"),
    *("sequential-count", "sequential-profiled", "sequential-balanced", "two-stage", "k-stage"),
    *("exact-siblings", "exact-paper", "exact-paper-no-cache", "exact-paper-cache-first"),
}
"""Strategies that hand `launch` the same kind of plan as another: `make further` runs these on
agents, and `test_state.py` in this process."""


@pytest.fixture(autouse=True)
def _enough_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one core nothing is gained by more than one device, and who runs this has any number."""
    monkeypatch.setattr("launcher.plan.devices._shared_cores", len)


@dataclass(frozen=True)
class Agents:
    """Four agents that outlive the runs, a network in `folder`, and frames for it."""

    folder: Path
    nodes: list[dict[str, Any]]

    def expected(self, network: str) -> list[np.ndarray]:
        session = ort.InferenceSession(str(self.folder / f"{network}.onnx"))
        frames = np.load(self.folder / "frames.npy")
        return [session.run(None, {"image": frame})[0] for frame in frames]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("strategies")
    write_network(folder / "net.onnx", layers=3, channels=96)
    write_network(folder / "other.onnx", layers=3)
    frames = np.random.default_rng(0).standard_normal((FRAMES, *SHAPE), np.float32)
    np.save(folder / "frames.npy", frames)
    with daemons(("a", "b", "c", "d"), folder / "cache") as addresses:
        # So slow that links cost little beside layers, which are large beside a firing, and with
        # processors that serve the network meanwhile.
        nodes = [
            {"name": name, "address": address, "macs_per_s": "100M", "accelerator": True}
            for name, (address, _) in addresses.items()
        ]
        yield Agents(folder, nodes)


def launched(
    agents: Agents, capsys: pytest.CaptureFixture[str], name: str, **config: Any
) -> dict[str, Any]:
    """The report of a run that must end well; results lie in the folder `name`, the plan too."""
    cluster = agents.folder / f"{name}.yaml"
    data = {"nodes": agents.nodes, "frames": FRAMES, **config}
    cluster.write_text(yaml.safe_dump(data))
    folder = agents.folder / name
    report = done(main, capsys, cluster, "--output", folder, "--save", folder / "plan")
    assert report["frames"] == FRAMES
    assert report["max_relative_error"] <= 1e-4
    return dict(report)


def check_results(folder: Path, expected: list[np.ndarray]) -> None:
    """Each frame's result is its own, and they were written in the order of frames."""
    files = sorted(folder.glob("*.npy"))
    assert len(files) == len(expected)
    for file, wanted in zip(files, expected, strict=True):
        np.testing.assert_allclose(np.load(file), wanted, rtol=1e-4, atol=1e-5)
    written = [file.stat().st_mtime_ns for file in files]
    assert written == sorted(written)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(name, marks=pytest.mark.further if name in SIBLINGS else ())
        for name in STRATEGIES
    ],
)
def test_launch_runs_it(agents: Agents, capsys: pytest.CaptureFixture[str], strategy: str) -> None:
    config: dict[str, Any] = {"model": "net.onnx", "input": "frames.npy", "strategy": strategy}
    if strategy == "manual":
        config["pins"] = {"c*": "a", "r*": "c", "sum": "b", "mean": "b", "features": "b"}
    report = launched(agents, capsys, strategy, **config)
    assert report["strategy"] == strategy
    assert sum(bool(node["layers"]) for node in report["nodes"]) >= 2
    check_results(agents.folder / strategy, agents.expected("net"))
    plan = json.loads((agents.folder / strategy / "plan" / "plan.json").read_text())
    if strategy not in ("auto", "runs"):
        assert bool(plan["rewrites"]) == (strategy in REWRITING)


@pytest.mark.parametrize("strategy", ["co-deploy", "batch-split"])
def test_launch_runs_it_for_two_networks(
    agents: Agents, capsys: pytest.CaptureFixture[str], strategy: str
) -> None:
    name = f"two-{strategy}"
    inputs = {"net": "frames.npy", "other": "frames.npy"}
    models = ["net.onnx", "other.onnx"]
    report = launched(agents, capsys, name, model=models, inputs=inputs, strategy=strategy)
    assert list(report["networks"]) == ["net", "other"]
    for network in report["networks"]:
        check_results(agents.folder / name / network, agents.expected(network))
