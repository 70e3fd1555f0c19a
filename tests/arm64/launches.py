"""What is launched over agents on ARM: cluster files, networks, a stream in which a node goes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from launcher.run.request import Request
from launcher.streaming.live_cluster import open_cluster
from tests.launcher import kinds
from tests.launcher_runtime.clusters import RandomFrames
from tests.launcher_runtime.test_starting_daemons import Said

ROOT = Path(__file__).parents[2]
LIMIT_S = 3600

Node = Mapping[str, object]


def write_cluster(folder: Path, nodes: Sequence[Node], **keys: object) -> Path:
    """Write `cluster.yaml`, with patience for agents that are emulated."""
    path = folder / "cluster.yaml"
    patience = {
        "run": {"connect_timeout_s": 120, "silence_timeout_s": 60, "deploy_timeout_s": 1800},
        "recovery": {"heartbeat_s": 20},
    }
    path.write_text(json.dumps({"nodes": nodes, "keys": "keys", **patience, **keys}))
    return path


def launch(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    """Run `launch` with these arguments and `--json`; returns its exit code and what it printed."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "launch"), *arguments, "--json"],
        env={**os.environ, **environment}, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def model(name: str, folder: Path) -> tuple[str, str]:
    """Return a network and its input, as `cluster.yaml` names them."""
    match name:
        case "digits":
            digits = ROOT / "examples" / "digits"
            return str(digits / "digits.onnx"), str(digits / "test_images.npy")
        case "squeezenet":
            return "onnx-wheel:squeezenet", "random"
        case "8-bit":
            frames = folder / "frames"
            frames.mkdir(exist_ok=True)
            for key, array in kinds.frames("qdq").items():
                np.save(frames / f"{key}.npy", array)
            return str(kinds.write(folder / "qdq.onnx", "qdq")), f"{frames}/*.npy"
    return str(ROOT / f"tests/fixtures/models/{name}.onnx"), "random"


def stream_until_it_is_back(cluster: Path, network: Path, fault: Callable[[], None]) -> None:
    """Stream frames until a node is back that a fault takes after 20 results; all must be right."""
    session = ort.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    frames, said, results = RandomFrames(16), Said(), []

    def endless() -> Iterator[dict[str, np.ndarray]]:
        for number in range(100_000):
            if said.has("is back"):
                return
            yield dict(frames[number % 16])

    with open_cluster(Request(cluster), said, most=16) as live:
        for result in live.stream(endless()):
            results.append(next(iter(result.values())))
            if len(results) == 20:
                fault()
    assert said.has("is back"), said.texts
    wanted = [session.run(None, dict(frames[number]))[0] for number in range(16)]
    for number, got in enumerate(results):
        np.testing.assert_allclose(got, wanted[number % 16], rtol=1e-4, atol=1e-5)
