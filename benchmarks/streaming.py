"""What a stream costs, and how many frames in flight it needs, on the same nodes.

    python -m benchmarks.streaming [--model onnx-wheel:squeezenet] [--nodes 3] [--frames 150]

One cluster is opened. In each round, frames go through it from a source to a sink once with each
number in flight, and once with as many as the channels can hold at all, which is what a run over
files has; the ratio of their rates counts, and the median is reported with the latency.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import print_json
from launcher.config.reconnect import ReconnectConfig
from launcher.progress import open_progress
from launcher.run.live_cluster import LiveCluster, open_cluster
from launcher.run.request import Request
from launcher.sinks.base import FrameResult
from launcher.sources.base import SourceFrame
from launcher.streaming.delivery import Delivery
from launcher.streaming.in_flight import frames_in_flight
from launcher.streaming.overload import OverloadQueue
from launcher.streaming.reading import Reader
from launcher.streaming.source_stream import SourceStream


class Repeated:
    """A source that gives one frame again and again."""

    description = "one frame"
    is_live = False

    def __init__(self, cluster: LiveCluster, frames: int) -> None:
        draw = np.random.default_rng(0)
        self._frame = {
            name: draw.random(info.shape).astype(info.dtype)
            for name, info in cluster.inputs.items()
        }
        self._frames = frames

    def frames(self) -> Iterator[SourceFrame]:
        """Give as many frames as were asked for."""
        for _ in range(self._frames):
            yield SourceFrame(self._frame, 0.0)

    def close(self) -> None:
        """Nothing is open."""


class Nothing:
    """A sink that forgets."""

    description = "nothing"
    needs_image = False

    def write(self, _: FrameResult) -> None:
        """Forget a result."""

    def close(self) -> None:
        """Nothing is open."""


def main() -> None:
    """Measure, and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="onnx-wheel:squeezenet")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--frames", type=int, default=150, help="in each stream")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, nargs="*", default=[])
    print_json(measured(parser.parse_args()))


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """The figures by number of frames in flight."""
    with tempfile.TemporaryDirectory() as folder, open_progress() as progress:
        target = Path(folder) / "cluster.yaml"
        nodes = "".join(f"  - {{name: n{number}}}\n" for number in range(given.nodes))
        target.write_text(f"model: {given.model}\nstrategy: sequential\nnodes:\n{nodes}")
        with open_cluster(Request(target), progress, most=1000) as cluster:
            chosen = frames_in_flight(cluster.plan)
            most = sum(channel.capacity_frames for channel in cluster.plan.channels) + 2
            numbers = sorted({*given.in_flight, chosen})
            ran: dict[int, list[tuple[float, float, float]]] = {number: [] for number in numbers}
            streamed(cluster, most, given.frames)
            for _ in range(given.rounds):
                full, _ = streamed(cluster, most, given.frames)
                for number in numbers:
                    rate, latency_s = streamed(cluster, number, given.frames)
                    ran[number].append((rate / full, rate, latency_s))
    return {
        "model": given.model,
        "nodes": given.nodes,
        "chosen": chosen,
        "channels hold": most,
        "in flight": {
            str(number): dict(
                zip(
                    ("rate / full", "frames/s", "latency_s"),
                    (round(statistics.median(column), 4) for column in zip(*rows, strict=True)),
                    strict=True,
                )
            )
            for number, rows in ran.items()
        },
    }


def streamed(cluster: LiveCluster, in_flight: int, frames: int) -> tuple[float, float]:
    """The frames/s and the median latency of a stream."""
    policy = ReconnectConfig()

    def say(_: str) -> None: ...

    reader = Reader(Repeated(cluster, frames), OverloadQueue(1, "block"), policy, say)
    with SourceStream(reader, [Delivery(Nothing(), policy, say)]) as stream:
        began_s = time.monotonic()
        stream.run(lambda inputs: cluster.submit(inputs, copy=False), in_flight)
    if stream.ended_s is None:
        raise RuntimeError("there was no result")
    return frames / (stream.ended_s - began_s), stream.latencies.quantile_s(0.5) or 0.0


if __name__ == "__main__":
    main()
