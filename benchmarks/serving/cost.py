"""Measures what `launch serve` costs: frames per second and latency, on the same nodes.

One cluster is opened. In each round, frames go through it directly (`LiveCluster.stream` and
`infer`) and through its servers, in turns; the ratio of each pair counts, and the median is
reported. The clients, Triton's, are a process of their own. The agents have one half of this
machine's processors, as boards have theirs; the servers and the clients share the other half.

Pictures are measured on a detector that computes as much as YOLOv8n: `predict` and `predictions`
beside `infer` and `stream` with letterbox and non-maximum suppression by OpenCV, as a user writes
them, and a JPEG file of 1920 × 1080 pixels over HTTP beside `infer`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.networks import detector
from benchmarks.report import Figure, report
from benchmarks.serving.client import MODEL, Client
from benchmarks.serving.clients import KINDS
from launcher.config.load import load_cluster
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.serve.over_grpc.server import grpc_server
from launcher.serve.over_http.server import http_server
from launcher.serve.routes import Routes, ServedVersion
from launcher.serve.service import Service
from launcher.serve.tensors import ServedModel
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from launcher.tasks.opening import Task, open_task
from nodes.host.heap import keep_one_heap
from nodes.protocol.payload import Array

NODES, IN_FLIGHT = 2, 16
SERVED_TO_DIRECT = 0.9
ADDED_MS = 2.0
PREDICT_TO_LIBRARIES = 0.95
ADDED_BY_PICTURE_MS = 15.0
SIDE, CONFIDENCE, OVERLAP = 640, 0.25, 0.7
"""The detector's input, and the usual thresholds of the task `detect`."""


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The figures, by kind of server; ratios and differences are medians over the rounds."""
    with opened(given.model) as (cluster, _), served(cluster) as ports:
        figures = [row for kind in KINDS for row in rows(cluster, kind, ports[kind], given)]
    with tempfile.TemporaryDirectory() as folder:
        model = detector(Path(folder) / "detector.onnx")
        with opened(str(model)) as (cluster, task), served(cluster, task) as ports:
            figures += picture_rows(cluster, ports["http"], given)
    settings = {name: getattr(given, name) for name in ("model", "frames", "rounds", "requests")}
    settings |= {"nodes": NODES, "in_flight": IN_FLIGHT}
    return report("serving-cost", "What launch serve costs", figures, settings=settings)


@contextmanager
def opened(model: str) -> Iterator[tuple[LiveCluster, Task]]:
    """A cluster of local agents on one half of the processors, and what fits pictures to its
    network; this process has the other half."""
    keep_one_heap()  # as `launch serve` does
    cpus = sorted(os.sched_getaffinity(0))
    ours = cpus[len(cpus) // 2 :]
    theirs = cpus[: len(cpus) // 2] or ours
    names = (f"n{number}" for number in range(NODES))
    nodes = "".join(f"  - {{name: {name}, cpus: {theirs}}}\n" for name in names)
    with tempfile.TemporaryDirectory() as folder, open_progress() as progress:
        target = Path(folder) / "cluster.yaml"
        target.write_text(
            f"model: {{path: '{model}', name: model}}\nstrategy: sequential\nnodes:\n{nodes}"
        )
        os.sched_setaffinity(0, ours)
        try:
            with open_cluster(Request(target), progress, most=4 * IN_FLIGHT) as cluster:
                yield cluster, open_task(load_cluster(target), cluster.feed.part.model)
        finally:
            os.sched_setaffinity(0, cpus)


def picture_rows(cluster: LiveCluster, http: int, given: argparse.Namespace) -> Iterator[Figure]:
    """The figures of pictures."""
    pixels = a_picture()
    name, _ = next(iter(cluster.inputs.items()))

    def infer_by_libraries() -> None:
        suppressed(cluster.infer({name: letterboxed(pixels)})["o"])

    def stream_by_libraries() -> None:
        frames = ({name: letterboxed(pixels)} for _ in range(given.frames))
        for outputs in cluster.stream(frames, in_flight=IN_FLIGHT):
            suppressed(outputs["o"])

    def predictions() -> None:
        for _ in cluster.predictions([pixels] * given.frames, in_flight=IN_FLIGHT):
            pass

    streams = pairs(
        lambda: seconds_of(stream_by_libraries), lambda: seconds_of(predictions), given.rounds
    )
    single = pairs(
        lambda: seconds_of(infer_by_libraries),
        lambda: seconds_of(lambda: cluster.predict(pixels)),
        given.requests,
    )
    for what, found in (("predictions ÷ stream", streams), ("predict ÷ infer", single)):
        ratios = [libraries / ours for libraries, ours in found]
        yield figure(f"{what} with OpenCV", ratios, at_least=PREDICT_TO_LIBRARIES)
    frame, content = {name: letterboxed(pixels)}, jpeg(pixels)
    connection = HTTPConnection("127.0.0.1", http)

    def over_http() -> None:
        connection.request("POST", f"/v1/predict/{MODEL}", content)
        answer = connection.getresponse()
        if answer.status != 200 or not json.loads(answer.read())["predictions"]["objects"]:
            raise SystemExit(f"a picture was answered by {answer.status}")

    with closing(connection):
        asked = pairs(
            lambda: seconds_of(lambda: cluster.infer(frame)),
            lambda: seconds_of(over_http),
            given.requests,
        )
    added_ms = [1e3 * (through - direct) for direct, through in asked]
    note = f"of {len(content) // 1000} kB; the network {1e3 * asked[0][0]:.0f} ms"
    yield figure(
        "added latency, a 1080p JPEG to boxes over HTTP", added_ms, "ms",
        at_most=ADDED_BY_PICTURE_MS, note=note,
    )  # fmt: skip


def a_picture() -> Array:
    """Return noise of 1920 × 1080 pixels that is smooth, as photographs are."""
    noise = np.random.default_rng(0).integers(0, 256, (68, 120, 3), np.uint8)
    return np.asarray(cv2.resize(noise, (1920, 1080), interpolation=cv2.INTER_CUBIC))


def jpeg(pixels: Array) -> bytes:
    """Return a picture as a JPEG file."""
    return bytes(cv2.imencode(".jpg", pixels[:, :, ::-1], (cv2.IMWRITE_JPEG_QUALITY, 90))[1])


def letterboxed(pixels: Array) -> Array:
    """Return a picture as the detector takes it, by OpenCV alone."""
    height, width = pixels.shape[:2]
    scale = min(SIDE / height, SIDE / width)
    size = round(width * scale), round(height * scale)
    resized = cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR)
    left, top = (SIDE - size[0]) // 2, (SIDE - size[1]) // 2
    whole = cv2.copyMakeBorder(
        resized, top, SIDE - size[1] - top, left, SIDE - size[0] - left, cv2.BORDER_CONSTANT,
        value=(114, 114, 114),
    )  # fmt: skip
    return np.asarray(cv2.dnn.blobFromImage(whole, 1 / 255))


def suppressed(output: Array) -> int:
    """Return the number of objects in the detector's output, by NumPy and OpenCV alone."""
    rows = output[0]
    best = rows[4:].max(axis=0)
    kept = np.flatnonzero(best >= CONFIDENCE)
    x, y, width, height = rows[:4, kept]
    boxes = np.stack([x - width / 2, y - height / 2, width, height], axis=1)
    classes = rows[4:, kept].argmax(axis=0)
    return len(
        cv2.dnn.NMSBoxesBatched(
            boxes.tolist(), best[kept].tolist(), classes.tolist(), CONFIDENCE, OVERLAP
        )
    )


def rows(cluster: LiveCluster, kind: str, port: int, given: argparse.Namespace) -> Iterator[Figure]:
    """The figures of one kind of server."""
    frame = a_frame(cluster)

    def stream_direct() -> None:
        for _ in cluster.stream([frame] * given.frames, in_flight=IN_FLIGHT):
            pass

    with Client(kind, port) as client:
        streams = pairs(
            lambda: seconds_of(stream_direct),
            lambda: client.order(given.frames, IN_FLIGHT),
            given.rounds,
        )
        single = pairs(
            lambda: seconds_of(lambda: cluster.infer(frame)),
            lambda: client.order(1, 0),
            given.requests,
        )
    yield figure(f"served frames/s, {kind}", [given.frames / served_s for _, served_s in streams])
    ratios = [direct / through for direct, through in streams]
    yield figure(f"served ÷ direct, {kind}", ratios, at_least=SERVED_TO_DIRECT)
    added_ms = [1e3 * (through - direct) for direct, through in single]
    asked = ADDED_MS if kind == "grpc" else None
    yield figure(f"added latency, {kind}", added_ms, "ms", at_most=asked)


def seconds_of(work: Callable[[], object]) -> float:
    """How long this takes."""
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def figure(what: str, values: list[float], unit: str = "", **more: Any) -> Figure:
    """The median, with the quartiles as its bounds; one value is all three."""
    known = values if len(values) > 1 else values * 2
    low, middle, high = (round(value, 3) for value in statistics.quantiles(known))
    return Figure(what, middle, unit, low=low, high=high, **more)


def pairs(
    direct: Callable[[], float], through: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """What both took in each round, the second first in every other one; the first round, which
    warms up, does not count."""
    found = []
    for number in range(rounds + 1):
        if number % 2:
            second = through()
            found.append((direct(), second))
        else:
            found.append((direct(), through()))
    return found[1:]


def a_frame(cluster: LiveCluster) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        name: random.random(tensor.shape).astype(tensor.dtype)
        for name, tensor in cluster.inputs.items()
    }


@contextmanager
def served(cluster: LiveCluster, task: Task | None = None) -> Iterator[dict[str, int]]:
    """Both servers, in a separate thread; kind → port. Pictures are served by a `task`."""
    ports: dict[str, int] = {}
    are_up = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        served = ServedModel(MODEL, cluster.inputs, cluster.outputs)
        routes = Routes([ServedVersion(served, cluster.feed, task)])
        service = Service(routes, views=lambda: (cluster.view(),))
        async with (
            http_server(service, "127.0.0.1", 0) as http,
            grpc_server(service, "127.0.0.1", 0, tls=None, most=1000) as grpc,
        ):
            ports.update(http=http, grpc=grpc)
            are_up.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    are_up.wait()
    try:
        yield ports
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
