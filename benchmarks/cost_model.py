"""Compares the vectorised cost model with plans, and times it: `python -m benchmarks.cost_model`.

Networks are divided over 2 to 10 equal devices in three ways: contiguous cuts, runs of layers of
random lengths, and every layer by itself at random. Each division is priced by `CostModel` and made
into a plan. The benchmark reports by how many per cent the estimates of period, energy, latency and
fullest device exceed the plan's figures (least, median, most), and the processor time of pricing
one assignment in a population of 64 (median of `--repetitions`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

import cnn
from benchmarks.segmentation import MODELS
from cnn.network import Network
from partition.devices import Device
from partition.planner import make_plan
from partition.prediction.timing import energy_j
from partition.pricing.cost import CostModel
from partition.strategies.base import Problem

NETWORKS = (
    "onnx-wheel:resnet50",
    *(str(MODELS / f"{name}.onnx") for name in ("MobileNetV2", "InceptionV3", "ResNet152")),
)
COUNTS = (2, 4, 10)
WAYS = ("cuts", "runs", "layers")
POPULATION = 64
FIGURES = ("period", "energy", "latency", "memory")


@dataclass(frozen=True, slots=True)
class Row:
    """One network divided in one way: per cent by which estimates exceed plans, and µs."""

    network: str
    way: str
    divisions: int
    excess_percent: dict[str, tuple[float, float, float]]
    microseconds: dict[int, float]


def divisions(network: Network, way: str, seed: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Numbers of devices, and a device number per layer."""
    rng = np.random.default_rng(seed)
    layers = len(network.layers)
    for devices in COUNTS:
        if way == "cuts":
            cuts = np.sort(rng.choice(np.arange(1, layers), devices - 1, replace=False))
            yield devices, np.repeat(np.arange(devices), np.diff([0, *cuts, layers]))
        elif way == "runs":
            lengths = rng.integers(1, max(2, layers // devices), layers)
            owners = rng.integers(0, devices, layers)
            yield devices, np.repeat(owners, lengths)[:layers].astype(np.intp)
        else:
            yield devices, rng.integers(0, devices, layers).astype(np.intp)


def excess(network: Network, devices: int, numbers: NDArray[np.intp]) -> dict[str, float]:
    """Per cent by which each estimate exceeds the plan's figure."""
    problem = Problem(network, tuple(Device(f"d{i}") for i in range(devices)))
    plan = make_plan(
        network, "", problem.devices, problem.assignment(numbers), strategy="any", explanation=""
    )
    costs = problem.costs.evaluate(numbers[None])
    pairs = {
        "period": (costs.period_s[0], plan.period_s),
        "energy": (costs.energy_j[0], energy_j(plan)),
        "latency": (costs.latency_s[0], plan.latency_s),
        "memory": (
            costs.memory_bytes[0].max(),
            max(part.total_bytes for part in plan.memory.values()),
        ),
    }
    return {name: 100 * float(one / other - 1) for name, (one, other) in pairs.items()}


def microseconds(network: Network, devices: int, way: str, repetitions: int) -> float:
    """Processor time of pricing one assignment among `POPULATION`."""
    model = CostModel(network, [Device(f"d{i}") for i in range(devices)])
    rows = [dict(divisions(network, way, seed))[devices] for seed in range(POPULATION)]
    population = np.array(rows, dtype=np.int16)
    seconds = []
    for _ in range(repetitions):
        start_s = time.process_time()
        model.evaluate(population)
        seconds.append(time.process_time() - start_s)
    return 1e6 * statistics.median(seconds) / POPULATION


def measure(network: Network, way: str, seeds: int, repetitions: int) -> Row:
    found: dict[str, list[float]] = {name: [] for name in FIGURES}
    for seed in range(seeds):
        for devices, numbers in divisions(network, way, seed):
            for name, value in excess(network, devices, numbers).items():
                found[name].append(value)
    return Row(
        network.name,
        way,
        seeds * len(COUNTS),
        {name: (min(v), statistics.median(v), max(v)) for name, v in found.items()},
        {devices: microseconds(network, devices, way, repetitions) for devices in COUNTS},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NET")
    parser.add_argument("--seeds", type=int, default=5, help="divisions per number of devices")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args()
    rows = []
    if not options.json:
        shown = "".join(f"{name + ' %':>22s}" for name in FIGURES)
        print(f"{'network':14s}{'way':8s}{shown}   µs each on {', '.join(map(str, COUNTS))}")
    for name in options.networks:
        network = cnn.read(name).network
        for way in WAYS:
            row = measure(network, way, options.seeds, options.repetitions)
            rows.append(row)
            if not options.json:
                columns = "".join(
                    f"{least:8.1f}{middle:7.1f}{most:7.1f}"
                    for least, middle, most in row.excess_percent.values()
                )
                each = ", ".join(f"{value:.0f}" for value in row.microseconds.values())
                print(f"{row.network:14s}{way:8s}{columns}   {each}", flush=True)
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
