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
from benchmarks.serving.client import MODEL, Client
from benchmarks.serving.clients import KINDS
from launcher.progress import open_progress
from launcher.run.request import Request
from launcher.serve.over_grpc.server import grpc_server
from launcher.serve.over_http.server import http_server
from launcher.serve.routes import Routes, ServedVersion
from launcher.serve.service import Service
from launcher.serve.tensors import ServedModel
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from nodes.host.heap import keep_one_heap

NODES, IN_FLIGHT = 2, 16
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
        names = (f"n{number}" for number in range(NODES))
        nodes = "".join(f"  - {{name: {name}, cpus: {theirs}}}\n" for name in names)
        target.write_text(
            f"model: {{path: '{given.model}', name: model}}\nstrategy: sequential\nnodes:\n{nodes}"
        )
        with (
            open_cluster(Request(target), progress, most=4 * IN_FLIGHT) as cluster,
            served(cluster) as ports,
        ):
            figures = [row for kind in KINDS for row in rows(cluster, kind, ports[kind], given)]
    settings = {name: getattr(given, name) for name in ("model", "frames", "rounds", "requests")}
    settings |= {"nodes": NODES, "in_flight": IN_FLIGHT}
    return report("serving-cost", "What launch serve costs", figures, settings=settings)


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
    """The median, with the quartiles beside it."""
    low, middle, high = (round(value, 3) for value in statistics.quantiles(values))
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
def served(cluster: LiveCluster) -> Iterator[dict[str, int]]:
    """Both servers, in a thread of their own; kind → port."""
    ports: dict[str, int] = {}
    are_up = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        served = ServedModel(MODEL, cluster.inputs, cluster.outputs)
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
