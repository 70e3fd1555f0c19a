"""Deals batches out to two real devices of this machine, as Vanishree et al. (2020) do.

Each device is a process on a separate CPU core that computes its share of a batch as one batch,
with ONNX Runtime and one thread. Both cores have the same peak, so CcT's rule deals a batch out in
equal shares. One process lets the engine optimise the network, the other does not, as if it had
another library; how much slower that is depends on the network. CoIn measures each device for the
smallest and the largest batch, and Eq. 1 gives the shares. The time of a batch is that of the
device which is done last, while both compute.

This is the paper's experiment on other devices: speed-ups have its shape, not its figures.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import cnn
from benchmarks.papers.segmentation import MODELS
from partition.pricing.linear_models import deal_by_ratio, fit

NETWORKS: Mapping[str, tuple[str, int]] = {
    "SqueezeNet": ("onnx-wheel:squeezenet", 18),
    "MobileNet": (str(MODELS / "MobileNet.onnx"), 6),
    "GoogleNet": ("onnx-wheel:inception_v1", 15),
}
"""The networks of Table II that we have, and the largest batch there."""

REPETITIONS = 5
HELD = 3
"""The batch is `HELD` times the largest one that is measured."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """What was measured for a network.

    `error` is the mean deviation of times from the line through the smallest and the largest batch,
    relative to the time. `shares` are frames by CoIn; `coin_s` and `cct_s` are the times of a batch
    by both rules. `tight_s` is its time if the second device holds only the largest measured batch
    ÷ `HELD`, so that CoIn re-balances, and `alone_s` that of the first device alone.
    """

    error: float
    shares: tuple[int, ...]
    coin_s: float
    cct_s: float
    tight_s: float
    alone_s: float


def measure(source: str, largest: int, repetitions: int = REPETITIONS) -> Dealt:
    """Measure the network from `source` (as `cnn.read`) in batches of up to `largest` frames.

    Needs two CPU cores, and nothing else that runs on them.
    """
    batch = HELD * largest
    with TemporaryDirectory(prefix="sub-batches-") as place, _devices() as devices:
        files = _Files(source, Path(place))

        def seconds(shares: Sequence[int]) -> list[float]:
            """Return the seconds of each device for its share, the least of all repetitions."""
            for device, frames in zip(devices, shares, strict=True):
                device.send((str(files.of(frames)) if frames else None, repetitions))
            each = [device.recv() for device in devices]
            return [min(own, default=0.0) for own in each]

        sizes = sorted({1, *(round(part * largest / 3) or 1 for part in (1, 2)), largest})
        alone = [
            [seconds([size if own == place else 0 for own in range(2)])[place] for size in sizes]
            for place in range(2)
        ]
        lines = [fit((sizes[0], own[0]), (sizes[-1], own[-1])) for own in alone]
        errors = [
            abs(line.seconds(size) / took - 1)
            for line, own in zip(lines, alone, strict=True)
            for size, took in zip(sizes[1:-1], own[1:-1], strict=True)
        ]
        shares = deal_by_ratio(lines, batch)
        equal = [batch - batch // 2, batch // 2]
        coin_s = max(seconds(shares))
        tight = deal_by_ratio(lines, batch, (None, max(1, largest // HELD)))
        return Dealt(
            statistics.mean(errors),
            tuple(shares),
            coin_s,
            coin_s if list(shares) == equal else max(seconds(equal)),
            max(seconds(tight)),
            seconds([batch, 0])[0],
        )


class _Files:
    """The network in batches of each size, written when it is first asked for."""

    def __init__(self, source: str, place: Path) -> None:
        self._model, self._place = cnn.read(source), place
        self._of: dict[int, Path] = {}

    def of(self, frames: int) -> Path:
        if frames not in self._of:
            model = self._model.in_batches(frames)
            network = model.network
            names = [layer.name for layer in network.layers]
            subnet = model.cut(names, tuple(network.inputs), tuple(network.outputs), self._place)
            self._of[frames] = subnet.graph
        return self._of[frames]


@contextmanager
def _devices() -> Iterator[list[Connection]]:
    """Start a process on each of two cores; end them at the end."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise RuntimeError("two CPU cores are needed, one for each device")
    context = multiprocessing.get_context("spawn")
    found: list[Connection] = []
    started = []
    for core, optimises in zip(cores, (True, False), strict=False):
        ours, theirs = context.Pipe()
        process = context.Process(target=_device, args=(theirs, core, optimises), daemon=True)
        process.start()
        theirs.close()
        found.append(ours)
        started.append(process)
    try:
        yield found
    finally:
        for device in found:
            device.close()
        for process in started:
            process.join(10)
            process.kill()


def _device(asked: Connection, core: int, optimises: bool) -> None:
    """Answer (file of a network, repetitions) with seconds, until the connection ends."""
    import onnxruntime as ort  # noqa: PLC0415 (after the affinity is set)

    os.sched_setaffinity(0, {core})
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    level = ort.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimises else level.ORT_DISABLE_ALL
    sessions: dict[str, ort.InferenceSession] = {}
    draw = np.random.default_rng(0)
    while True:
        try:
            file, repetitions = asked.recv()
        except EOFError:
            return
        took = []
        if file is not None:
            if file not in sessions:
                sessions[file] = ort.InferenceSession(file, options, ["CPUExecutionProvider"])
            session = sessions[file]
            frames = {
                one.name: draw.random(one.shape, dtype=np.float32) for one in session.get_inputs()
            }
            for _ in range(repetitions + 1):
                start_s = time.perf_counter()
                session.run(None, frames)
                took.append(time.perf_counter() - start_s)
        asked.send(took[1:])
