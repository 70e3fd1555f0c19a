"""What `launch serve` costs: frames per second and latency, served and direct, on the same nodes.

    python -m benchmarks.serving [--model onnx-wheel:resnet50] [--nodes 2] [--frames 100]

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
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import print_json
from launcher.progress import open_progress
from launcher.run.live_cluster import LiveCluster, open_cluster
from launcher.run.request import Request
from launcher.serve.grpc_server import grpc_server
from launcher.serve.http_server import http_server
from launcher.serve.service import Service
from launcher.serve.tensors import ModelRepository, ServedModel

KINDS = ("grpc", "http")
NAME = "model"


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--frames", type=int, default=100, help="in each half of a pair")
    parser.add_argument(
        "--requests", type=int, default=100, help="alone, each with a direct one beside"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--client", nargs=2, metavar=("KIND", "ADDRESS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.client:
        serve_orders(*given.client)
    else:
        print_json(measured(given))


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures, by kind of server; ratios and differences are medians over the rounds."""
    with tempfile.TemporaryDirectory() as folder, open_progress() as progress:
        target = Path(folder) / "cluster.yaml"
        cpus = sorted(os.sched_getaffinity(0))
        ours = cpus[len(cpus) // 2 :]
        os.sched_setaffinity(0, ours)
        theirs = cpus[: len(cpus) // 2] or ours
        names = (f"n{number}" for number in range(given.nodes))
        nodes = "".join(f"  - {{name: {name}, cpus: {theirs}}}\n" for name in names)
        target.write_text(
            f"model: {{path: {given.model}, name: {NAME}}}\nstrategy: sequential\nnodes:\n{nodes}"
        )
        with (
            open_cluster(Request(target), progress, most=4 * given.in_flight) as cluster,
            served(cluster) as ports,
        ):
            figures = {kind: rounds(cluster, kind, ports[kind], given) for kind in KINDS}
    return {
        "model": given.model,
        "nodes": given.nodes,
        "in_flight": given.in_flight,
        "frames": given.frames,
        "rounds": given.rounds,
        **figures,
    }


def rounds(
    cluster: LiveCluster, kind: str, port: int, given: argparse.Namespace
) -> dict[str, float]:
    """Pairs of direct and served, in turns, which of them comes first as well."""
    frame = a_frame(cluster)
    with Client(kind, port) as client:

        def stream_direct(_: int) -> float:
            began_s = time.perf_counter()
            for _ in cluster.stream([frame] * given.frames, in_flight=given.in_flight):
                pass
            return time.perf_counter() - began_s

        def infer_direct(_: int) -> float:
            began_s = time.perf_counter()
            cluster.infer(frame)
            return time.perf_counter() - began_s

        def stream_served(_: int) -> float:
            return client.order(given.frames, given.in_flight)

        def infer_served(_: int) -> float:
            return client.order(1, 0)

        for warm_up in (stream_direct, stream_served, infer_direct, infer_served):
            warm_up(0)
        streams = pairs(stream_direct, stream_served, given.rounds)
        single = pairs(infer_direct, infer_served, given.requests)
    return {
        "direct_frames_per_s": given.frames / statistics.median(d for d, _ in streams),
        "served_frames_per_s": given.frames / statistics.median(s for _, s in streams),
        "served_to_direct": statistics.median(d / s for d, s in streams),
        "direct_latency_ms": 1e3 * statistics.median(d for d, _ in single),
        "served_latency_ms": 1e3 * statistics.median(s for _, s in single),
        "added_latency_ms": 1e3 * statistics.median(s - d for d, s in single),
    }


def pairs(
    direct: Callable[[int], float], through: Callable[[int], float], rounds: int
) -> list[tuple[float, float]]:
    """What both took in each round."""
    found = []
    for number in range(rounds):
        if number % 2:
            second = through(number)
            found.append((direct(number), second))
        else:
            found.append((direct(number), through(number)))
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
        service = Service(
            cluster, ModelRepository((ServedModel(NAME, cluster.inputs, cluster.outputs),))
        )
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


class Client:
    """A process that sends requests on command."""

    def __init__(self, kind: str, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving", "--client", kind, f"127.0.0.1:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def order(self, requests: int, in_flight: int) -> float:
        """Seconds for all requests; without any in flight, for one after the other."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{requests} {in_flight}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


def serve_orders(kind: str, address: str) -> None:
    """The client's process: an order per line, and what it took per line."""
    blocking = import_module(f"tritonclient.{kind}")
    waiting = import_module(f"tritonclient.{kind}.aio")
    one = blocking.InferenceServerClient(address)
    metadata = one.get_model_metadata(NAME, **({"as_json": True} if kind == "grpc" else {}))
    inputs = []
    for tensor in metadata["inputs"]:
        shape = [int(size) for size in tensor["shape"]]
        inputs.append(blocking.InferInput(tensor["name"], shape, tensor["datatype"]))
        inputs[-1].set_data_from_numpy(np.random.default_rng(0).random(shape).astype("float32"))

    async def stream(requests: int, in_flight: int) -> None:
        left = iter(range(requests))
        async with waiting.InferenceServerClient(address) as client:

            async def ask() -> None:
                for _ in left:
                    await client.infer(NAME, inputs)

            await asyncio.gather(*(ask() for _ in range(in_flight)))

    for line in sys.stdin:
        requests, in_flight = map(int, line.split())
        began_s = time.perf_counter()
        if in_flight:
            asyncio.run(stream(requests, in_flight))
        else:
            for _ in range(requests):
                one.infer(NAME, inputs)
        sys.stdout.write(f"{time.perf_counter() - began_s}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
