"""Segments networks for Edge TPUs, and compares the result with Villarrubia et al. (2025).

All networks at 8 bits per weight, on devices with a cache of 8 MiB.

Synthetic networks of L convolutions of f filters of 3 × 3 each on maps of 64 × 64, the first one on
3 channels, in 4 segments: `sequential-count` is compared with their Table 4 (their compiler),
`sequential-balanced` and `sequential-profiled` with Table 6. Of weights that do not fit beside a
segment's inputs, whole layers stay on the host (`cache_spill: layers`).

The layers of real networks take seconds in proportion to their weights, as stages of equal weights
do in their Figure 10, scaled so that one device takes the time of Table 7.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import cnn
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

TPU = Device(
    "tpu", cache_bytes=CACHE, cache_spill="layers", memory_bytes_per_s=1e12, cut_s_per_byte=1e-12,
    link_bytes_per_s=1e9, firing_s=0.0, wire_s_per_message=0.0, wire_s_per_byte=0.0,
)  # fmt: skip
"""An Edge TPU behind PCIe, of which nothing but its cache matters here."""

TABLE_4: Mapping[int, tuple[tuple[float, ...], float]] = {
    482: ((0.021, 2.00, 2.00, 4.01), 0.0),
    512: ((0.022, 2.26, 2.26, 4.53), 0.0),
    542: ((0.024, 2.54, 2.54, 5.07), 0.0),
    572: ((0.025, 2.82, 2.82, 5.64), 0.0),
    602: ((0.026, 3.13, 3.13, 3.13), 3.13),
    632: ((0.027, 3.44, 3.44, 3.44), 3.44),
    662: ((0.029, 3.78, 3.78, 3.78), 3.78),
    692: ((0.030, 4.08, 4.08, 4.08), 4.08),
}
"""Filters → MiB on each of 4 devices, and with the host of the last one."""

TABLE_6: Mapping[int, tuple[float, ...]] = {
    482: (2.02, 2.00, 2.00, 2.01),
    512: (2.28, 2.26, 2.26, 2.26),
    542: (2.56, 2.54, 2.54, 2.54),
    572: (2.85, 2.82, 2.82, 2.82),
    602: (3.13, 3.13, 3.13, 3.13),
    632: (3.47, 3.44, 3.44, 3.44),
    662: (3.81, 3.78, 3.78, 3.78),
    692: (4.11, 4.08, 4.08, 4.08),
}

TABLES_5_AND_7: Mapping[str, tuple[int, float, float]] = {
    "Xception": (4, 60.11, 12.64),
    "ResNet50": (4, 29.69, 5.28),
    "ResNet50V2": (4, 30.94, 6.13),
    "ResNet101": (6, 44.73, 5.59),
    "ResNet101V2": (6, 54.94, 5.52),
    "ResNet152": (8, 68.94, 6.30),
    "ResNet152V2": (8, 72.84, 6.63),
    "InceptionV3": (4, 36.96, 6.72),
    "DenseNet121": (2, 14.88, 6.05),
    "DenseNet169": (3, 30.94, 8.96),
    "DenseNet201": (4, 50.12, 10.13),
}
"""Network → devices, ms per frame on one of them and in segments of SEGM_BALANCED."""

TOLERANCE_MIB = 0.015
TOLERANCE = 0.01
"""What the published sizes hold besides weights: hundredths of a MiB, and up to 1 %."""


@dataclass(frozen=True, slots=True)
class SyntheticRow:
    """One synthetic network; sizes in MiB per device, `host` the sum that stays with the host."""

    filters: int
    count: tuple[float, ...]
    count_host: float
    balanced: tuple[float, ...]
    balanced_host: float
    profiled: tuple[float, ...]
    profiled_host: float
    layers: tuple[int, ...]

    @property
    def agrees(self) -> bool:
        """Whether sizes are those of Tables 4 and 6, and the split is 2-1-1-1."""
        sizes, host = TABLE_4[self.filters]
        return (
            self.layers == (2, 1, 1, 1)
            and self.profiled == self.balanced
            and _close((*self.count, self.count_host), (*sizes, host))
            and _close((*self.balanced, self.balanced_host), (*TABLE_6[self.filters], 0.0))
        )


def synthetic(filters: int) -> SyntheticRow:
    with tempfile.TemporaryDirectory(prefix="synthetic-") as place:
        network = cnn.read(write_synthetic(Path(place) / "net.onnx", filters)).network
    problem = Problem(at_8_bits(network), _devices(4), objective="period")
    count, count_host, _ = _held(problem, SequentialCount())
    balanced, balanced_host, layers = _held(problem, SequentialBalanced())
    profiled, profiled_host, _ = _held(problem, SequentialProfiled())
    return SyntheticRow(
        filters, count, count_host, balanced, balanced_host, profiled, profiled_host, layers
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Segments of a network by equal counts and by `sequential-balanced`: MiB of their weights, MiB
    with the host, and speed-ups over one device. `balanced` took `seconds` and was found in this
    `way`."""

    count: tuple[float, ...]
    count_host: float
    count_speedup: float
    balanced: tuple[float, ...]
    balanced_host: float
    balanced_speedup: float
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
    return Pipeline(
        tuple((np.bincount(count, sizes, minlength=devices) / MIB).tolist()),
        float(hosts[0]),
        float(speedups[0]),
        tuple((np.bincount(balanced, sizes, minlength=devices) / MIB).tolist()),
        float(hosts[1]),
        float(speedups[1]),
        took_s,
        solution.explanation.rpartition(", ")[2],
    )


def host_bytes(network: Network) -> float:
    """The weights that one device leaves with the host, in bytes."""
    one = np.zeros((1, len(network.layers)), dtype=int)
    return float(Problem(network, _devices(1)).costs.evaluate(one).cache_overrun_bytes[0, 0])


def _devices(count: int) -> tuple[Device, ...]:
    return tuple(replace(TPU, name=f"tpu{i}") for i in range(count))


def _held(problem: Problem, strategy: Strategy) -> tuple[tuple[float, ...], float, tuple[int, ...]]:
    """MiB of weights on each device, MiB with the host, and layers on each device."""
    numbers = problem.numbers(strategy.solve(problem).assignment)
    costs = problem.costs.evaluate(numbers[None])
    on_host = costs.cache_overrun_bytes[0] / MIB
    on_device = costs.weight_bytes[0] / MIB - on_host
    layers = np.bincount(numbers, minlength=len(problem.devices))
    return tuple(on_device.tolist()), float(on_host.sum()), tuple(layers.tolist())


def _close(found: tuple[float, ...], published: tuple[float, ...]) -> bool:
    return all(
        abs(a - b) <= TOLERANCE_MIB + TOLERANCE * b for a, b in zip(found, published, strict=True)
    )


LAYERS = 5
CHANNELS = 3
SIDE = 64


def write_synthetic(path: Path, filters: int, layers: int = LAYERS) -> Path:
    """Write the network of `layers` convolutions with `filters` filters each; returns `path`."""
    nodes, shapes = [], []
    for number in range(layers):
        shape = (filters, filters if number else CHANNELS, 3, 3)
        weight = f"weight{number}"
        shapes.append(numpy_helper.from_array(np.array(shape, np.int64), f"{weight}.shape"))
        nodes.append(helper.make_node("ConstantOfShape", [f"{weight}.shape"], [weight]))
        source, made = ("image" if number == 0 else f"map{number - 1}"), f"map{number}"
        nodes.append(
            helper.make_node(
                "Conv", [source, weight], [made], f"conv{number}", kernel_shape=[3, 3], pads=[1] * 4
            )
        )
    size = [SIDE, SIDE]
    graph = helper.make_graph(
        nodes,
        f"synthetic{filters}",
        [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, [1, CHANNELS, *size])],
        [
            helper.make_tensor_value_info(
                f"map{layers - 1}", onnx.TensorProto.FLOAT, [1, filters, *size]
            )
        ],
        shapes,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def at_8_bits(network: Network) -> Network:
    """`network` as if quantised: a byte for each element of its weights and activations."""
    return replace(
        network,
        tensors={n: replace(tensor, dtype="uint8") for n, tensor in network.tensors.items()},
        weights={n: replace(weight, dtype="int8") for n, weight in network.weights.items()},
    )
