"""Times whole networks with ONNX Runtime and with TVM, untuned and tuned, on one thread.

    python -m benchmarks.tvm [NETWORK …] [--tuning-s SECONDS] [--json]

Networks are what `cnn.read` takes. The engines run in turns. A network whose untuned run takes long
is run less often. The budget for tuning is that of each network.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import cnn
from benchmarks.report import Figure, Table, print_figures, report
from nodes.executors.base import LoadedSubnet, LoadOptions
from nodes.executors.onnx.runtime import OnnxRuntimeExecutor
from nodes.executors.synthetic_inputs import synthetic_input
from nodes.executors.tvm.executor import TvmExecutor

NETWORKS = ("examples/digits/digits.onnx", "onnx-wheel:squeezenet", "onnx-wheel:resnet50")

_ROUNDS = 9
_LONGEST_S = 20.0


@dataclass(frozen=True)
class Timed:
    """Seconds of a run of one network, and of its preparation by TVM."""

    network: str
    onnx_runtime_s: float
    tvm_s: float
    tuned_s: float
    compiling_s: float
    tuning_s: float

    def texts(self) -> tuple[str, ...]:
        """Return a row of the table."""
        runs = (self.onnx_runtime_s, self.tvm_s, self.tuned_s)
        return (
            self.network,
            *(f"{seconds * 1e3:.2f}" for seconds in runs),
            f"{self.compiling_s:.1f}",
            f"{self.tuning_s:.1f}",
        )


COLUMNS = ("network", "ONNX Runtime, ms", "TVM, ms", "TVM tuned, ms", "compiling, s", "tuning, s")


def run_s(subnets: list[LoadedSubnet]) -> list[float]:
    """Return each subnet's median time per run."""
    inputs = {n: synthetic_input(s.dtype, s.shape) for n, s in subnets[0].inputs.items()}
    times: list[list[float]] = [[] for _ in subnets]
    begin = time.perf_counter()
    while len(times[0]) < _ROUNDS and (not times[0] or time.perf_counter() - begin < _LONGEST_S):
        for subnet, taken in zip(subnets, times, strict=True):
            subnet.run(inputs)
            start = time.perf_counter()
            subnet.run(inputs)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def timed(name: str, tuning_s: float, folder: Path) -> Timed:
    """Compile, tune and time one network."""
    model = cnn.read(name)
    network = model.network
    layers = [layer.name for layer in network.layers]
    graph = model.cut(layers, network.inputs, network.outputs, folder / "graph").graph
    subnets: list[LoadedSubnet] = [OnnxRuntimeExecutor(folder / "onnx").load(graph, LoadOptions())]
    tvm, took_s = TvmExecutor(folder / "tvm"), []
    for options in (LoadOptions(), LoadOptions(engine_options={"tuning_s": str(tuning_s)})):
        begin = time.perf_counter()
        subnets.append(tvm.load(graph, options))
        took_s.append(time.perf_counter() - begin)
    seconds = run_s(subnets)
    return Timed(Path(name.rpartition(":")[2]).stem, *seconds, *took_s)


def main() -> int:
    """Print a row for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--tuning-s", type=float, default=30.0)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.networks:
        with tempfile.TemporaryDirectory(prefix="tvm-") as folder:
            rows.append(timed(name, arguments.tuning_s, Path(folder)))
        if not arguments.json:
            print(" | ".join(rows[-1].texts()), flush=True)
    figures = [
        Figure(
            f"{row.network}: TVM {kind} ÷ ONNX Runtime, time of a frame",
            round(seconds / row.onnx_runtime_s, 2),
        )
        for row in rows
        for kind, seconds in (("untuned", row.tvm_s), ("tuned", row.tuned_s))
    ]
    data = report(
        "tvm",
        "TVM beside ONNX Runtime",
        figures,
        settings={"tuning_s": arguments.tuning_s, "threads": 1},
        tables=[Table("Time of a frame", COLUMNS, tuple(row.texts() for row in rows))],
        notes=["Other work ran on the machine; the engines took turns."],
    )
    return print_figures(data, figures, as_json=arguments.json)


if __name__ == "__main__":
    sys.exit(main())
