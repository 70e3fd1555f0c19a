"""`launch up` as a process of its own, with versions of the digits network in a folder."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import yaml
from onnx import numpy_helper

from benchmarks.serving.server import DIGITS, LAUNCH, Server

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


def frames(count: int) -> list[dict[str, Any]]:
    """The first frames, as clients send them."""
    return [{"image": image} for image in images()[:count]]


def answers(path: Path, count: int) -> list[dict[str, Any]]:
    """What a version's clients must be answered to the first frames."""
    return [{"probabilities": result} for result in whole(path, count)]


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


class Up(Server):
    """A running service."""

    def __init__(
        self, folder: Path, cluster: Path | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        given = [] if cluster is None else [str(cluster)]
        self.log = (folder / "up.log").open("a")
        super().__init__(["up", *given, "--state", str(folder / "state")], self.log, environment)

    def complaints(self) -> str:
        """See `Server`."""
        return (self.folder / "up.log").read_text()

    def command(self, *arguments: str) -> tuple[int, Any]:
        """Run another command of the service with --json; return its exit code and answer."""
        return command(self.folder, *arguments)

    def end_of_output(self) -> int:
        """See `Server`."""
        code = super().end_of_output()
        self.log.close()
        return code

    def kill(self) -> None:
        """End it as a power cut does."""
        self.process.kill()
        self.end_of_output()


def command(folder: Path, *arguments: str) -> tuple[int, Any]:
    """Run a command of the service with --json; return its exit code and answer."""
    given: Sequence[str] = [*LAUNCH, *arguments, "--state", str(folder / "state"), "--json"]
    ran = subprocess.run(given, capture_output=True, text=True, check=False, timeout=CHANGE_S)
    try:
        return ran.returncode, json.loads(ran.stdout)
    except ValueError:
        raise AssertionError(f"{ran.returncode}: {ran.stdout} {ran.stderr}") from None
