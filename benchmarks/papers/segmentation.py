"""Segments networks for Edge TPUs as Villarrubia et al. (2025) do.

All networks at 8 bits per weight, on devices with a cache of 8 MiB. Of weights that do not fit
beside a segment's inputs, whole layers stay on the host (`cache_spill: layers`).

Synthetic networks have L convolutions of f filters of 3 × 3 each on maps of 64 × 64, the first one
on 3 channels. The layers of real networks take seconds in proportion to their weights, as stages of
equal weights do in the paper's Figure 10, scaled so that one device takes the time of Table 7.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import cnn
from benchmarks.networks import convolutions
from cnn.network import Network
from partition.devices import Device
from partition.strategies.base import Problem, Strategy
from partition.strategies.contiguous.segm import (
    SequentialBalanced,
    SequentialCount,
    SequentialProfiled,
)

MIB = 2**20
CACHE = 8 * MIB
MODELS = Path(__file__).parents[2] / "tests" / "fixtures" / "models"
LAYERS, SIDE = 5, 64
BATCH = 15
"""The frames of a batch that the paper measures (§5.2)."""

TPU = Device(
    "tpu", cache_bytes=CACHE, cache_spill="layers", memory_bytes_per_s=1e12, cut_s_per_byte=1e-12,
    link_bytes_per_s=1e9, firing_s=0.0, wire_s_per_message=0.0, wire_s_per_byte=0.0,
)  # fmt: skip
"""An Edge TPU behind PCIe, of which nothing but its cache matters here."""

STRATEGIES: Mapping[str, Strategy] = {
    "count": SequentialCount(),
    "balanced": SequentialBalanced(),
    "profiled": SequentialProfiled(),
}


@dataclass(frozen=True, slots=True)
class Held:
    """The MiB of weights on each device, and of all that stay with the host; layers by device."""

    device_mib: tuple[float, ...]
    host_mib: float
    layers: tuple[int, ...]


@cache
def synthetic_network(filters: int) -> Network:
    """The synthetic network with this number of filters, at 8 bits per weight."""
    with TemporaryDirectory(prefix="synthetic-") as place:
        return at_8_bits(cnn.read(write_synthetic(Path(place) / "net.onnx", filters)).network)


@cache
def synthetic(filters: int) -> Mapping[str, Held]:
    """A synthetic network in four segments by each of `STRATEGIES`."""
    problem = Problem(synthetic_network(filters), _devices(4), objective="period")
    return {name: _held(problem, strategy) for name, strategy in STRATEGIES.items()}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Segments of a network by equal counts and by `sequential-balanced`: MiB of their weights, MiB
    with the host, and speed-ups over one device, of an endless stream and of a batch of 15 frames
    that fills the pipeline and empties it. `balanced` took `seconds` and was found in this `way`.
    """

    count: tuple[float, ...]
    count_host: float
    count_speedup: float
    count_batch_speedup: float
    balanced: tuple[float, ...]
    balanced_host: float
    balanced_speedup: float
    balanced_batch_speedup: float
    seconds: float
    way: str


def pipeline(network: Network, devices: int, alone_ms: float) -> Pipeline:
    """Segment a network whose layers take seconds in proportion to their weights, such that one
    device takes `alone_ms` per frame, fetching included."""
    sizes = np.array([network.weight_bytes((layer.name,)) for layer in network.layers], float)
    computing_s = alone_ms / 1e3 - host_bytes(network) * TPU.cache_s_per_byte
    seconds = np.repeat(computing_s * (sizes / sizes.sum())[:, None], devices, axis=1)
    problem = Problem(network, _devices(devices), layer_s=seconds, objective="period")
    start_s = time.process_time()
    solution = SequentialBalanced().solve(problem)
    took_s = time.process_time() - start_s
    balanced = problem.numbers(solution.assignment)
    count = problem.numbers(SequentialCount().solve(problem).assignment)
    costs = problem.costs.evaluate(np.array([count, balanced, np.zeros_like(balanced)]))
    hosts = costs.cache_overrun_bytes.sum(axis=1) / MIB
    speedups = costs.period_s[2] / costs.period_s
    in_batch = BATCH * costs.period_s[2] / (costs.busy_s.sum(axis=1) + (BATCH - 1) * costs.period_s)
    return Pipeline(
        tuple((np.bincount(count, sizes, minlength=devices) / MIB).tolist()),
        float(hosts[0]),
        float(speedups[0]),
        float(in_batch[0]),
        tuple((np.bincount(balanced, sizes, minlength=devices) / MIB).tolist()),
        float(hosts[1]),
        float(speedups[1]),
        float(in_batch[1]),
        took_s,
        solution.explanation.rpartition(", ")[2],
    )


def host_bytes(network: Network) -> float:
    """The weights that one device leaves with the host, in bytes."""
    one = np.zeros((1, len(network.layers)), dtype=int)
    return float(Problem(network, _devices(1)).costs.evaluate(one).cache_overrun_bytes[0, 0])


def _devices(count: int) -> tuple[Device, ...]:
    return tuple(replace(TPU, name=f"tpu{i}") for i in range(count))


def _held(problem: Problem, strategy: Strategy) -> Held:
    numbers = problem.numbers(strategy.solve(problem).assignment)
    costs = problem.costs.evaluate(numbers[None])
    on_host = costs.cache_overrun_bytes[0] / MIB
    on_device = costs.weight_bytes[0] / MIB - on_host
    layers = np.bincount(numbers, minlength=len(problem.devices))
    return Held(tuple(on_device.tolist()), float(on_host.sum()), tuple(layers.tolist()))


def write_synthetic(path: Path, filters: int) -> Path:
    """Write the network of convolutions with `filters` filters each; return `path`."""
    return convolutions(path, LAYERS, filters, SIDE, has_weights=False)


def at_8_bits(network: Network) -> Network:
    """`network` as if quantised: a byte for each element of its weights and activations."""
    return replace(
        network,
        tensors={n: replace(tensor, dtype="uint8") for n, tensor in network.tensors.items()},
        weights={n: replace(weight, dtype="int8") for n, weight in network.weights.items()},
    )
