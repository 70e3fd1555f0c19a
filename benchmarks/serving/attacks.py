"""Measures what others notice while a server is attacked: its memory, and their latency.

Honest clients, over HTTP and over gRPC, ask one request after the other; each attack is a process
(`benchmarks.serving.attackers`). The server has a token, which shows what an attacker without it
can do.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.networks import convolutions
from benchmarks.processes import sizes
from benchmarks.report import Figure, report
from benchmarks.serving.attackers import ATTACKS
from benchmarks.serving.clients import KINDS, Clients
from benchmarks.serving.server import Serving

TOKEN = "a-token-for-the-honest"  # noqa: S105 - of a server that only this program reaches
HEADERS = {"authorization": f"Bearer {TOKEN}"}
MEMORY, LATENCY, LONGEST_S = 1.2, 2.0, 1.0
SOFT_DESCRIPTORS = 1024
SIDE, FILTERS = 224, 8
JSON_BYTES = 3 * SIDE * SIDE * 32 + 64 * 1024
PAUSE_S = 0.01


@contextmanager
def attacked_server(log: Path) -> Iterator[Serving]:
    """A server with a token, and with as few descriptors as a login has."""
    with tempfile.TemporaryDirectory() as folder, log.open("wb") as file:
        convolutions(Path(folder) / "net.onnx", 1, FILTERS, SIDE, taps=7, stride=4)
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


@dataclass(frozen=True)
class Observed:
    """The peak of the server's memory, and the honest clients' latencies by kind, and errors."""

    peak_bytes: int
    took_s: dict[str, list[float]]
    errors: list[str]


async def observed(serving: Serving, name: str, seconds: float) -> Observed:
    """What honest clients and the server's memory were like while one attack lasted, or none."""
    pid = serving.process.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # reset the peak
    frame = {"image": np.zeros((1, 3, SIDE, SIDE), np.float32)}
    wanted = {1: [{"mean": np.zeros((1, FILTERS, 1, 1), np.float32)}]}
    honest = [
        Clients([(kind, getattr(serving, kind))], "net", [frame], wanted, pause_s=PAUSE_S,
                headers=HEADERS)
        for kind in KINDS
    ]  # fmt: skip
    async with honest[0], honest[1]:
        if name:
            attacker = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.serving.attackers", name, serving.http,
                 serving.grpc, TOKEN, "net", str(JSON_BYTES), str(seconds)],
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            await asyncio.to_thread(attacker.wait)
        else:
            await asyncio.sleep(seconds)
    if serving.process.poll() is not None:
        raise AssertionError(f"{name}: the server ended")
    asked = dict(zip(KINDS, (one.asked for one in honest), strict=True))
    return Observed(
        sizes(pid)["VmHWM"],
        {kind: [answer.took_s for answer in one.answers] for kind, one in asked.items()},
        [error for one in asked.values() for error in one.errors.elements()],
    )


def measure(seconds: float, only: str | None = None) -> dict[str, Any]:
    """Return the figures of every attack and those of an undisturbed server."""
    figures, data = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ATTACKS if only is None else (only,):
            log = Path(folder) / f"{name}.log"
            with attacked_server(log) as serving:
                asyncio.run(observed(serving, "", 1.0))  # caches become warm
                calm = asyncio.run(observed(serving, "", 3.0))
                before = log.stat().st_size
                found = asyncio.run(observed(serving, name, seconds))
            log_bytes = log.stat().st_size - before
            rows = _rows(name, calm, found, log_bytes)
            figures += rows
            data[name] = {"errors": found.errors[:5], "log_bytes": log_bytes}
            for row in rows:
                sys.stderr.write(f"{row.what}: {row.measured} {row.unit} {row.note}\n")
    return report(
        "serving-attacks", "Attacks on launch serve", figures,
        settings={"seconds": seconds, "side": SIDE}, data=data,
    )  # fmt: skip


def _rows(name: str, calm: Observed, found: Observed, log_bytes: int) -> list[Figure]:
    what = name.replace("_", " ")
    ratio = found.peak_bytes / calm.peak_bytes
    note = f"{calm.peak_bytes / 1e6:.0f} → {found.peak_bytes / 1e6:.0f} MB"
    rows = [Figure(f"{what}: peak of memory", round(ratio, 2), "×", at_most=MEMORY, note=note)]
    for kind in KINDS:
        before, after = (statistics.median(one.took_s[kind]) for one in (calm, found))
        note = f"{1e3 * before:.1f} → {1e3 * after:.1f} ms, at most {max(found.took_s[kind]):.2f} s"
        rows.append(
            Figure(f"{what}: latency over {kind}", round(after / before, 2), "×",
                   at_most=LATENCY, note=note)
        )  # fmt: skip
    longest_s = max(max(found.took_s[kind]) for kind in KINDS)
    rows.append(Figure(f"{what}: longest wait", round(longest_s, 2), "s", at_most=LONGEST_S))
    rows.append(Figure(f"{what}: honest requests that failed", len(found.errors), at_most=0))
    rows.append(Figure(f"{what}: bytes of log", log_bytes, at_most=2000))
    return rows
