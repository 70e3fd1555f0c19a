"""Measures what cutting costs an engine: `python -m benchmarks.cutting [--json] [NET …]`.

Networks are cut in two ways, into equal numbers of consecutive layers and into runs of random
lengths dealt out to a few devices, and an agent's executor runs each phase's subnet on one thread.
A repetition runs every division of a network once. The cost of cutting is the median processor time
by which a division exceeds the whole network in the same repetition. Terms per phase, per tensor
and per byte that enter or leave phases (as `partition.prediction.timing.cut_bytes` counts them) are
fitted to it by least squares without negative terms: each term by itself, then all together. The
constants of `partition.prediction.timing` come from it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

import cnn
from benchmarks.report import Figure, Table, print_json, report
from benchmarks.segmentation import MODELS
from cnn.network import Network
from csdf.conversion.from_network import HOST, SOURCE, Dataflow, convert
from nodes.executors.base import LoadOptions
from nodes.executors.registry import open_executor
from partition.prediction.timing import cut_bytes

NETWORKS = (
    "onnx-wheel:resnet50",
    *(str(MODELS / f"{name}.onnx") for name in ("MobileNetV2", "InceptionV3", "DenseNet121")),
    str(MODELS / "VGG16.onnx"),
)
SEGMENTS = (1, 2, 4, 8, 16, 32)
DEALT = ((2, 4), (3, 3), (4, 6), (4, 2))
"""(devices, mean number of layers in a run)"""

TERMS = ("phases", "tensors", "bytes")
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One division of one network: the median processor time of a frame, and the median of what
    that is more than the whole network's."""

    network: str
    division: str
    phases: int
    tensors: int
    bytes: int
    seconds: float
    more_s: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Seconds per unit of each term, and what they leave unexplained."""

    seconds_per: dict[str, float]
    rms_s: float
    largest_s: float


class Chain:
    """The subnets of a dataflow, loaded as an agent with one thread loads them."""

    def __init__(self, model: cnn.Model, dataflow: Dataflow, place: Path) -> None:
        options = LoadOptions(threads=1)
        executor = open_executor("onnxruntime", place / "cache")
        graphs = [
            model.cut(phase.layers, phase.inputs, phase.outputs, place).graph
            for phase in dataflow.phases
        ]
        executor.prepare(graphs, options)
        subnets = (executor.load(graph, options) for graph in graphs)
        self._steps = list(zip(subnets, dataflow.phases, strict=True))

    def processor_s(self, frame: dict[str, np.ndarray]) -> float:
        """Processor time of one frame."""
        tensors = dict(frame)
        start_s = time.process_time()
        for subnet, phase in self._steps:
            tensors |= subnet.run({name: tensors[name] for name in phase.inputs})
        return time.process_time() - start_s


def divisions(network: Network) -> Iterator[tuple[str, dict[str, str]]]:
    """Names of divisions, and the assignments."""
    count = len(network.layers)
    for segments in SEGMENTS:
        yield (
            f"{segments} segments",
            {
                layer.name: f"d{number * segments // count}"
                for number, layer in enumerate(network.layers)
            },
        )
    for devices, mean in DEALT:
        rng = np.random.default_rng(devices * 100 + mean)
        dealt: list[int] = []
        while len(dealt) < count:
            dealt += [int(rng.integers(devices))] * int(rng.integers(1, 2 * mean))
        yield (
            f"runs of about {mean} on {devices}",
            {
                layer.name: f"d{device}"
                for layer, device in zip(network.layers, dealt[:count], strict=True)
            },
        )


def crossing_tensors(dataflow: Dataflow) -> int:
    """As `cut_bytes`, in tensors."""
    incoming = sum(flow.target_device != HOST for flow in dataflow.flows)
    outgoing = {(f.source, f.tensor.name) for f in dataflow.flows if f.source != SOURCE}
    return incoming + len(outgoing)


def measure(name: str, repetitions: int) -> list[Row]:
    """The whole network first, then its other divisions, measured in alternation."""
    model = cnn.read(name)
    random = np.random.default_rng(0)
    frame = {
        given: random.standard_normal(model.network.tensors[given].shape, dtype=np.float32)
        for given in model.network.inputs
    }
    chains: dict[str, tuple[Dataflow, Chain]] = {}
    with tempfile.TemporaryDirectory(prefix="cutting-") as place:
        for division, assignment in divisions(model.network):
            dataflow = convert(model.network, assignment)
            folder = Path(place) / division.replace(" ", "-")
            chains[division] = dataflow, Chain(model, dataflow, folder)
        seconds: dict[str, list[float]] = {division: [] for division in chains}
        for _ in range(WARM_UP + repetitions):
            for division, (_, chain) in chains.items():
                seconds[division].append(chain.processor_s(frame))
    whole = next(iter(seconds.values()))
    return [
        Row(
            Path(name).stem,
            division,
            len(dataflow.phases),
            crossing_tensors(dataflow),
            sum(cut_bytes(dataflow).values()),
            statistics.median(seconds[division][WARM_UP:]),
            statistics.median(np.subtract(seconds[division], whole)[WARM_UP:].tolist()),
        )
        for division, (dataflow, _) in chains.items()
    ]


def fit(rows: Sequence[Row], terms: Sequence[str]) -> Fit:
    """Least squares over what each division costs more than its whole network."""
    whole = {row.network: row for row in rows if row.phases == 1}
    more = np.array(
        [[getattr(row, term) - getattr(whole[row.network], term) for term in terms] for row in rows]
    )
    extra = np.array([row.more_s for row in rows])
    found, _ = nnls(more, extra)
    left = more @ found - extra
    return Fit(
        dict(zip(terms, found.tolist(), strict=True)),
        float(np.sqrt(np.mean(left**2))),
        float(np.abs(left).max()),
    )


def as_report(rows: Sequence[Row], fits: Sequence[Fit], repetitions: int) -> dict[str, Any]:
    """As `benchmarks.report` wants it."""
    figures = [
        Figure(
            f"left by {' and '.join(each.seconds_per)}", round(1e3 * each.rms_s, 3), "ms rms",
            note=", ".join(f"{1e9 * s:.3g} ns per {term}" for term, s in each.seconds_per.items())
            + f"; {1e3 * each.largest_s:.2f} ms at most",
        )
        for each in fits
    ]  # fmt: skip
    columns = ("network", "division", "phases", "tensors", "MB", "ms", "more than the whole, ms")
    lines = tuple(
        (
            *(row.network, row.division, str(row.phases), str(row.tensors)),
            *(f"{row.bytes / 1e6:.1f}", f"{1e3 * row.seconds:.2f}", f"{1e3 * row.more_s:+.2f}"),
        )
        for row in rows
    )
    return report(
        "cutting",
        "What cutting a network costs the engine",
        figures,
        settings={"repetitions": repetitions},
        notes=["Processor time, medians; all divisions of a network take turns."],
        tables=[Table("Divisions", columns, lines)],
        data={"rows": [asdict(row) for row in rows], "fits": [asdict(each) for each in fits]},
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NET")
    parser.add_argument("--repetitions", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.networks:
        rows += measure(name, options.repetitions)
        if not options.json:
            for row in rows[-len(SEGMENTS) - len(DEALT) :]:
                print(
                    f"{row.network:12s}  {row.division:22s} {row.phases:4d} phases "
                    f"{row.tensors:4d} tensors {row.bytes / 1e6:7.1f} MB "
                    f"{1e3 * row.seconds:8.2f} ms, {1e3 * row.more_s:+.2f}",
                    flush=True,
                )
    fits = [fit(rows, terms) for terms in (*((term,) for term in TERMS), TERMS)]
    if options.json:
        print_json(as_report(rows, fits, options.repetitions))
        return 0
    for each in fits:
        costs = ", ".join(f"{value:.3g} s per {term}" for term, value in each.seconds_per.items())
        print(
            f"{costs}: leaves {1e3 * each.rms_s:.2f} ms rms, {1e3 * each.largest_s:.2f} ms at most"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
