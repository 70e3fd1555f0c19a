"""Measures what `launch serve` costs: frames per second and latency, on the same nodes.

One cluster is opened. In each round, frames go through it directly (`LiveCluster.stream` and
`infer`) and through its servers, in turns; the ratio of each pair counts, and the median is
reported. The clients, Triton's, are a process of their own. The agents have one half of this
machine's processors, as boards have theirs; the servers and the clients share the other half.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Figure, report
from benchmarks.serving.asking import KINDS
from benchmarks.serving.client import Client
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.serve.grpc_server import grpc_server
from launcher.serve.http_server import http_server
from launcher.serve.routes import Routes, ServedVersion
from launcher.serve.service import Service
from launcher.serve.tensors import ServedModel
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from nodes.host.heap import keep_one_heap

SERVED_TO_DIRECT = 0.9
ADDED_MS = 2.0


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """The figures, by kind of server; ratios and differences are medians over the rounds."""
    keep_one_heap()  # as `launch serve` does
    with tempfile.TemporaryDirectory() as folder, open_progress() as progress:
        target = Path(folder) / "cluster.yaml"
        cpus = sorted(os.sched_getaffinity(0))
        ours = cpus[len(cpus) // 2 :]
        os.sched_setaffinity(0, ours)
        theirs = cpus[: len(cpus) // 2] or ours
        names = (f"n{number}" for number in range(given.nodes))
        nodes = "".join(f"  - {{name: {name}, cpus: {theirs}}}\n" for name in names)
        target.write_text(
            f"model: {{path: '{given.model}', name: model}}\nstrategy: sequential\nnodes:\n{nodes}"
        )
        with (
            open_cluster(Request(target), progress, most=4 * given.in_flight) as cluster,
            served(cluster) as ports,
        ):
            figures = [row for kind in KINDS for row in rows(cluster, kind, ports[kind], given)]
    settings = {
        name: getattr(given, name)
        for name in ("model", "nodes", "in_flight", "frames", "rounds", "requests")
    }
    return report("serving-cost", "What launch serve costs", figures, settings=settings)


def rows(cluster: LiveCluster, kind: str, port: int, given: argparse.Namespace) -> Iterator[Figure]:
    """The figures of one kind of server."""
    frame = a_frame(cluster)

    def stream_direct() -> float:
        began_s = time.perf_counter()
        for _ in cluster.stream([frame] * given.frames, in_flight=given.in_flight):
            pass
        return time.perf_counter() - began_s

    def infer_direct() -> float:
        began_s = time.perf_counter()
        cluster.infer(frame)
        return time.perf_counter() - began_s

    with Client(kind, port) as client:

        def stream_served() -> float:
            return client.order(given.frames, given.in_flight)

        def infer_served() -> float:
            return client.order(1, 0)

        for warm_up in (stream_direct, stream_served, infer_direct, infer_served):
            warm_up()
        streams = pairs(stream_direct, stream_served, given.rounds)
        rates = [given.frames / seconds for _, seconds in streams]
        yield figure(f"served frames/s, {kind}", rates)
        ratios = [direct / through for direct, through in streams]
        yield figure(f"served ÷ direct, {kind}", ratios, at_least=SERVED_TO_DIRECT)
        single = pairs(infer_direct, infer_served, given.requests)
        added_ms = [1e3 * (through - direct) for direct, through in single]
        asked = ADDED_MS if kind == "grpc" else None
        yield figure(f"added latency, {kind}", added_ms, "ms", at_most=asked)


def figure(what: str, values: list[float], unit: str = "", **more: Any) -> Figure:
    """The median, with the quartiles beside it."""
    low, middle, high = (round(value, 3) for value in statistics.quantiles(values))
    return Figure(what, middle, unit, low=low, high=high, **more)


def pairs(
    direct: Callable[[], float], through: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """What both took in each round."""
    found = []
    for number in range(rounds):
        if number % 2:
            second = through()
            found.append((direct(), second))
        else:
            found.append((direct(), through()))
    return found


def a_frame(cluster: LiveCluster) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        name: random.random(tensor.shape).astype(tensor.dtype)
        for name, tensor in cluster.inputs.items()
    }


@contextmanager
def served(cluster: LiveCluster) -> Iterator[dict[str, int]]:
    """Both servers, in a thread of their own; kind → port."""
    ports: dict[str, int] = {}
    are_up = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        served = ServedModel("model", cluster.inputs, cluster.outputs)
        routes = Routes([ServedVersion(served, cluster)])
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
