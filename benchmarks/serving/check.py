"""Checks the answers of `launch serve` with Triton's Python clients, over HTTP and over gRPC.

First, a network over three nodes answers what ONNX Runtime computes with the whole network. Then
eight clients at once get thousands of answers of the example, each its own, while one of its three
agents is killed. Last, more clients than the server takes are refused at once or answered.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import tritonclient.http

import cnn
from benchmarks.report import Figure, report
from benchmarks.serving.asking import KINDS, Arrays, Asked, ask_all
from benchmarks.serving.server import DIGITS, Serving

CLIENTS = 8
CROWD = 24
AT_MOST = 1e-4


def measure(model: str, frames: int, requests: int) -> dict[str, Any]:
    """The figures, each with its bound."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [*_agreement(model, frames, Path(folder)), *_killed(requests), *_overload()]
    return report("serving-check", "Answers of launch serve", rows, settings={"model": model})


def _agreement(model: str, frames: int, folder: Path) -> list[Figure]:
    read = cnn.read(model)
    random = np.random.default_rng(0)
    network = read.network
    given = [
        {name: random.standard_normal(network.tensors[name].shape, "f4") for name in network.inputs}
        for _ in range(frames)
    ]
    session = _session(read.write_original(folder))
    wanted = [dict(zip(read.outputs, session.run(read.outputs, one), strict=True)) for one in given]
    target = folder / "cluster.yaml"
    nodes = "".join(f"  - name: n{number}\n" for number in range(3))
    target.write_text(f"model: {{path: {model}, name: model}}\nnodes:\n{nodes}")
    serving = Serving(target=target)
    rows = []
    for kind in KINDS:
        address = getattr(serving, kind)
        asked = asyncio.run(ask_all(address, kind, "model", given, wanted, clients=2, each=frames))
        rows += [
            Figure(f"largest error, {kind}", asked.largest_error, at_most=AT_MOST),
            Figure(f"answers, {kind}", asked.answers, at_least=2 * frames),
        ]
    serving.end()
    return rows


def _session(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def _digits() -> tuple[list[Arrays], list[Arrays]]:
    session = _session(DIGITS / "digits.onnx")
    given = [{"image": image[None]} for image in np.load(DIGITS / "test_images.npy")]
    names = ["probabilities"]
    return given, [dict(zip(names, session.run(names, one), strict=True)) for one in given]


def _killed(requests: int) -> list[Figure]:
    given, wanted = _digits()
    rows = []
    for kind in KINDS:
        serving = Serving()
        asked, before = Asked(), Asked()

        async def both(
            serving: Serving = serving,
            kind: str = kind,
            asked: Asked = asked,
            before: Asked = before,
        ) -> None:
            address = getattr(serving, kind)
            asking = ask_all(
                address, kind, "digits", given, wanted,
                clients=CLIENTS, each=requests // CLIENTS, asked=asked,
            )  # fmt: skip
            first = ask_all(
                address, kind, "digits", given, wanted, clients=1, each=requests // 8, asked=before
            )
            task = asyncio.create_task(asking)
            await first
            os.kill(serving.agents()[1], signal.SIGKILL)
            await task

        asyncio.run(both())
        counted = _counted(serving)
        serving.end()
        rows += [
            Figure(f"answers to eight clients, {kind}", asked.answers, at_least=requests),
            Figure(f"of them not their own, {kind}", asked.wrong + before.wrong, at_most=0),
            Figure(f"errors, {kind}", len(asked.others + before.others), at_most=0),
            Figure(
                f"answers beyond requests, {kind}",
                counted - requests - requests // 8,
                at_most=0,
                note="by the server's statistics; an agent was killed meanwhile",
            ),
        ]
    return rows


def _counted(serving: Serving) -> int:
    with tritonclient.http.InferenceServerClient(serving.http) as one:
        (stats,) = one.get_inference_statistics("digits")["model_stats"]
    return int(stats["inference_stats"]["success"]["count"])


def _overload() -> list[Figure]:
    given, wanted = _digits()
    rows = []
    for kind in KINDS:
        serving = Serving("--most-in-flight", "1")
        began_s = time.monotonic()
        asked = asyncio.run(
            ask_all(getattr(serving, kind), kind, "digits", given, wanted, clients=CROWD, each=20)
        )
        rows += [
            Figure(f"answers to a crowd, {kind}", asked.answers, at_least=20 * CROWD),
            Figure(
                f"refusals of a crowd, {kind}",
                asked.refusals,
                at_least=1,
                note=f"{CROWD} clients, one request at a time is taken; "
                f"{time.monotonic() - began_s:.0f} s in all",
            ),
            Figure(f"other errors of a crowd, {kind}", len(asked.others), at_most=0),
        ]
        serving.end()
    return rows
