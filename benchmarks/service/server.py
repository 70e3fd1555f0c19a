"""`launch up` as a process of its own, with versions of the digits network in a folder."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import yaml
from onnx import numpy_helper

from benchmarks.processes import agents_of
from benchmarks.serving.server import DIGITS, WAIT_S

LAUNCH = (sys.executable, "-m", "launcher.commands.launch")
CHANGE_S = 180.0


def write_version(folder: Path, version: int) -> Path:
    """Write the digits network with its classes shifted by `version - 1`; return its file.

    Every ten versions its last layer has larger weights, so that all networks differ.
    """
    scale = 1 + (version - 1) // 10 / 10
    model = onnx.load(DIGITS / "digits.onnx")
    by_name = {one.name: one for one in model.graph.initializer}
    last = next(node for node in reversed(model.graph.node) if node.op_type in ("Gemm", "MatMul"))
    for name in last.input[1:]:
        array = numpy_helper.to_array(by_name[name])
        axis = next(axis for axis, size in enumerate(array.shape) if size == 10)
        shifted = np.roll(array, version - 1, axis) * array.dtype.type(scale)
        by_name[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(shifted), name))
    path = folder / f"digits{version}.onnx"
    onnx.save(model, path)
    return path


def images() -> np.ndarray[Any, Any]:
    """All frames: [number, 1, 1, 8, 8]."""
    return np.load(DIGITS / "test_images.npy")[:, None]


def whole(path: Path, count: int) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime makes of the first frames with a version."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [session.run(None, {"image": image})[0] for image in images()[:count]]


def write_cluster(folder: Path, *models: tuple[str, int], count: int = 2, **keys: object) -> Path:
    """Write a cluster.yaml with these models, each a name and a version of digits, and so many
    nodes."""
    data = {
        "model": [
            {"name": name, "version": version, "path": f"digits{version}.onnx"}
            for name, version in models
        ],
        "nodes": [{"name": f"n{number}"} for number in range(count)],
        "strategy": "sequential",
        "serve": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0"},
        **keys,
    }
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


class Up:
    """A running service; its addresses are without a scheme."""

    def __init__(
        self, folder: Path, cluster: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        given = [] if cluster is None else [str(cluster)]
        self.log = (folder / "up.log").open("a")
        self.process = subprocess.Popen(
            [*LAUNCH, "up", *given, "--state", str(folder / "state")],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert self.process.stdout is not None
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line)
            addresses = dict(re.findall(r"(http|grpc)s?://([\[\]\w.:]+)", line))
            if addresses:
                self.http, self.grpc = addresses["http"], addresses["grpc"]
                return
        self.process.wait()
        raise AssertionError((folder / "up.log").read_text())

    def read_until(self, text: str) -> None:
        """Read its output to the line that has `text`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return
        raise AssertionError("".join(self.lines) + (self.folder / "up.log").read_text())

    def command(self, *arguments: str) -> tuple[int, Any]:
        """Run another command of the service with --json; return its exit code and answer."""
        return command(self.folder, *arguments)

    def agents(self) -> list[int]:
        """The process ids of its agents."""
        return agents_of(self.process.pid)

    def end_of_output(self) -> int:
        """Read its output to the end; return its exit code."""
        self.process.communicate(timeout=WAIT_S)
        self.log.close()
        return self.process.returncode

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.end_of_output()

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code, once no agent is left."""
        agents = self.agents()
        os.kill(self.process.pid, number)
        code = self.end_of_output()
        assert not [agent for agent in agents if Path(f"/proc/{agent}").exists()]
        return code


def command(folder: Path, *arguments: str) -> tuple[int, Any]:
    """Run a command of the service with --json; return its exit code and answer."""
    given: Sequence[str] = [*LAUNCH, *arguments, "--state", str(folder / "state"), "--json"]
    ran = subprocess.run(given, capture_output=True, text=True, check=False, timeout=CHANGE_S)
    try:
        return ran.returncode, json.loads(ran.stdout)
    except ValueError:
        raise AssertionError(f"{ran.returncode}: {ran.stdout} {ran.stderr}") from None
