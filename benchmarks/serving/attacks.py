"""Measures what others notice while a server is attacked: its memory, and their latency.

Honest clients, over HTTP and over gRPC, ask one request after the other; each attack is a process
(`benchmarks.serving.attackers`). The server has a token, which shows what an attacker without it
can do.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.report import Figure, report
from benchmarks.serving.asking import KINDS, inputs
from benchmarks.serving.attackers import ATTACKS
from benchmarks.serving.server import Serving

TOKEN = "a-token-for-the-honest"  # noqa: S105 - of a server that only this program reaches
MEMORY, LATENCY, LONGEST_S = 1.2, 2.0, 1.0
SOFT_DESCRIPTORS = 1024
SIDE = 224


def network(path: Path, side: int = SIDE) -> None:
    """A network for images of this side."""
    shape = [1, 3, side, side]
    rng = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(rng.normal(size=(8, 3, 7, 7)).astype("f4"), "w")
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["a"], strides=[4, 4]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["found"]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [1, 8, 1, 1])],
        [weight],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


@contextmanager
def attacked_server(side: int, log: Path) -> Iterator[Serving]:
    """A server with a token, and with as few descriptors as a login has."""
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as file:
        network(Path(folder) / "net.onnx", side)
        target = Path(folder) / "cluster.yaml"
        target.write_text("model: net.onnx\nnodes: [{name: a}]\n")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(SOFT_DESCRIPTORS, soft), hard))
        try:
            serving = Serving("--token", TOKEN, target=target, log=file)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        try:
            yield serving
        finally:
            serving.process.terminate()
            serving.process.communicate()


class Honest:
    """A client of one kind, and how long each of its requests took."""

    def __init__(self, serving: Serving, kind: str, side: int) -> None:
        self.latencies_s: list[float] = []
        self.errors: list[str] = []
        self._address, self._kind = getattr(serving, kind), kind
        self._given = inputs(kind, {"image": np.zeros((1, 3, side, side), np.float32)})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Honest:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        module = import_module(f"tritonclient.{self._kind}")
        headers = {"authorization": f"Bearer {TOKEN}"}
        with module.InferenceServerClient(self._address) as client:
            while not self._is_over.is_set():
                began_s = time.monotonic()
                try:
                    client.infer("net", self._given, headers=headers)
                except Exception as error:  # noqa: BLE001 - counted, whatever it is
                    self.errors.append(f"{type(error).__name__}: {error}"[:200])
                self.latencies_s.append(time.monotonic() - began_s)
                time.sleep(0.01)


def _status_bytes(pid: int, key: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition(f"{key}:")[2].split()[0])


def observed(serving: Serving, name: str, seconds: float, side: int) -> dict[str, Any]:
    """What honest clients and the server's memory were like while one attack lasted, or none."""
    pid = serving.process.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # reset the peak
    attacker = None
    if name:
        bytes_of_json = 3 * side * side * 32 + 64 * 1024
        attacker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving.attackers", name, serving.http,
             serving.grpc, TOKEN, "net", str(bytes_of_json), str(seconds)],
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
    clients = [Honest(serving, kind, side) for kind in KINDS]
    with clients[0], clients[1]:
        if attacker is None:
            time.sleep(seconds)
        else:
            attacker.wait()
    if serving.process.poll() is not None:
        raise AssertionError(f"{name}: the server ended")
    return {
        "peak_bytes": _status_bytes(pid, "VmHWM"),
        **{kind: one.latencies_s for kind, one in zip(KINDS, clients, strict=True)},
        "errors": [error for one in clients for error in one.errors],
    }


def measure(seconds: float, only: str | None = None, side: int = SIDE) -> dict[str, Any]:
    """Return the figures of every attack and those of an undisturbed server."""
    figures, data = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ATTACKS if only is None else (only,):
            log = Path(folder) / f"{name}.log"
            with attacked_server(side, log) as serving:
                observed(serving, "", 1.0, side)  # caches become warm
                calm = observed(serving, "", 3.0, side)
                before = log.stat().st_size
                found = observed(serving, name, seconds, side)
            log_bytes = log.stat().st_size - before
            rows = _rows(name, calm, found, log_bytes)
            figures += rows
            data[name] = {"errors": found["errors"][:5], "log_bytes": log_bytes}
            for row in rows:
                sys.stderr.write(f"{row.what}: {row.measured} {row.unit} {row.note}\n")
    return report(
        "serving-attacks", "Attacks on launch serve", figures,
        settings={"seconds": seconds, "side": side}, data=data,
    )  # fmt: skip


def _rows(name: str, calm: dict[str, Any], found: dict[str, Any], log_bytes: int) -> list[Figure]:
    what = name.replace("_", " ")
    ratio = found["peak_bytes"] / calm["peak_bytes"]
    note = f"{calm['peak_bytes'] / 1e6:.0f} → {found['peak_bytes'] / 1e6:.0f} MB"
    rows = [Figure(f"{what}: peak of memory", round(ratio, 2), "×", at_most=MEMORY, note=note)]
    for kind in KINDS:
        before, after = (statistics.median(one[kind]) for one in (calm, found))
        note = f"{1e3 * before:.1f} → {1e3 * after:.1f} ms, at most {max(found[kind]):.2f} s"
        rows.append(
            Figure(f"{what}: latency over {kind}", round(after / before, 2), "×",
                   at_most=LATENCY, note=note)
        )  # fmt: skip
    longest_s = max(max(found[kind]) for kind in KINDS)
    rows.append(Figure(f"{what}: longest wait", round(longest_s, 2), "s", at_most=LONGEST_S))
    rows.append(Figure(f"{what}: honest requests that failed", len(found["errors"]), at_most=0))
    rows.append(Figure(f"{what}: bytes of log", log_bytes, at_most=2000))
    return rows
