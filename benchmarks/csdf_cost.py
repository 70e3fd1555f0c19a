"""Times conversion, scheduling and proof for growing networks: `python -m benchmarks.csdf_cost`.

Dense blocks as in DenseNet (every layer reads up to eight before it), in three series: spread at
random over ten devices; three layers after each other per device, on up to a thousand devices; and
three layers per device spread at random. Skews are those of fewest bytes, the proof is that of a
plan, and the period is that of the phase graph with times drawn at random. Times are in
milliseconds, best of three, one thread. The last line of a series gives the power of the number of
channels with which each time grows from its first line to its last.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from cnn.network import Layer, Network, Tensor
from csdf.conversion.dataflow_graphs import phase_graph
from csdf.conversion.from_network import Converter
from csdf.conversion.proof import prove
from csdf.conversion.skew import retime
from csdf.timing.throughput import throughput

T = TypeVar("T")


def dense_network(layers: int, rng: random.Random) -> Network:
    names = ["x", *(f"l{i}" for i in range(layers))]
    made = []
    for i in range(1, layers + 1):
        before = names[max(0, i - 8) : i]
        read = {names[i - 1], *rng.sample(before, rng.choice((0, 0, 1, 2)) % (len(before) + 1))}
        made.append(Layer(names[i], "Conv", tuple(sorted(read)), (names[i],)))
    tensors = {name: Tensor(name, (1, rng.randint(1, 512), 28, 28), "float32") for name in names}
    return Network("dense", tuple(made), tensors, {}, ("x",), (names[-1],))


def timed(work: Callable[[], T]) -> tuple[float, T]:
    best, result = float("inf"), None
    for _ in range(3):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    assert result is not None
    return best * 1000, result


def measure(layers: int, devices: list[str]) -> tuple[int, list[float]]:
    """One line of the table: layer i is on `devices[i]`; returns channels and times."""
    rng = random.Random(1)
    network = dense_network(layers, rng)
    names = (layer.name for layer in network.layers)
    partition = dict(zip(names, devices, strict=True))
    converter = Converter(network)
    convert_ms, dataflow = timed(lambda: converter(partition))
    skew_ms, pipeline = timed(lambda: retime(dataflow))
    proof_ms, _ = timed(lambda: prove(dataflow, pipeline))
    times = {phase.name: Fraction(rng.randint(1, 100)) for phase in dataflow.phases}
    graph = phase_graph(dataflow, times=times, capacity_frames=pipeline.capacity_frames)
    period_ms, _ = timed(lambda: throughput(graph))
    spent = [convert_ms, skew_ms, proof_ms, period_ms]
    print(
        f"{len(set(devices)):>7} {layers:>7} {len(dataflow.phases):>7} {len(graph.channels):>8} "
        + " ".join(f"{one:>9.1f}" for one in spent)
    )
    return len(graph.channels), spent


def series(*assignments: list[str]) -> None:
    """One line for each; then the powers."""
    lines = [measure(len(devices), devices) for devices in assignments]
    (first, before), (last, after) = lines[0], lines[-1]
    powers = [math.log(b / a) / math.log(last / first) for a, b in zip(before, after, strict=True)]
    print(f"{'grows with the power':>32} " + " ".join(f"{one:>9.2f}" for one in powers))


def scattered(layers: int, devices: int) -> list[str]:
    rng = random.Random(2)
    return [f"dev{rng.randrange(devices)}" for _ in range(layers)]


def main() -> None:
    heads = ("devices", "layers", "phases", "channels")
    tasks = ("convert", "skews", "proof", "period")
    print("{:>7} {:>7} {:>7} {:>8}".format(*heads), *(f"{task:>9}" for task in tasks))
    series(*(scattered(layers, 10) for layers in (125, 250, 500, 1000, 2000)))
    sizes = (10, 30, 100, 300, 1000)
    series(*([f"dev{i // 3}" for i in range(3 * devices)] for devices in sizes))
    series(*(scattered(3 * devices, devices) for devices in sizes))


if __name__ == "__main__":
    main()
