"""Measures an NVIDIA GPU beside the CPU: `python -m benchmarks.gpu [NET …]`.

Every network is computed whole, by ONNX Runtime's executor on the CPU with one thread and with
`--threads`, and on the GPU by its provider CUDA. Each is a process of its own, and they take turns.
The table has

- the median time of a frame and the processor time of all threads per frame, copies to the GPU and
  back included,
- the seconds of the first load, with the child process that tries the subnet out, and of the first
  frame,
- the process's memory without its libraries, and what the GPU's used memory has grown by,
- the largest deviation from the outputs of one thread on the CPU, relative to the largest of them.

`--also ENGINE` adds that engine on the GPU, for example `tensorrt`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cnn
from benchmarks.engines.child import timed
from benchmarks.report import Table, print_json, report

NETWORKS = ("examples/digits/digits.onnx", "onnx-wheel:squeezenet", "onnx-wheel:resnet50")
COLUMNS = (
    *("network", "engine", "ms/frame", "CPU ms/frame", "load s", "first frame s"),
    *("memory MB", "GPU memory MB", "deviation"),
)
CHILD = (sys.executable, "-m", "benchmarks.gpu", "--child")
_WARM_UP = 5


def child(engine: str, device: str, threads: int, graph: Path, place: Path) -> None:
    """Load the network, write its outputs, and compute for as long as each line of input says."""
    from nodes.executors.base import LoadOptions  # noqa: PLC0415 - only in the child
    from nodes.executors.registry import open_executor  # noqa: PLC0415
    from nodes.host.usage import usage  # noqa: PLC0415

    used_before = gpu_used_bytes() if device != "cpu" else 0
    name = label(engine, device, threads)
    executor = open_executor(engine, place / f"cache {name}", device=device)
    began_s = time.perf_counter()
    subnet = executor.load(graph, LoadOptions(threads=threads))
    loaded_s = time.perf_counter()
    inputs = dict(np.load(place / "inputs.npz"))
    outputs = subnet.run(inputs)
    first_s = time.perf_counter()
    np.savez(place / f"{name}.npz", *outputs.values())
    for _ in range(_WARM_UP):
        subnet.run(inputs)
    facts = {
        "describes": executor.describe(),
        "load_s": loaded_s - began_s,
        "first_s": first_s - loaded_s,
        "rss": usage().rss_bytes,
        "gpu": gpu_used_bytes() - used_before if device != "cpu" else 0,
    }
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        print(json.dumps(timed([subnet], [inputs], float(line))), flush=True)


def gpu_used_bytes() -> int:
    """The memory in use on all GPUs, by whichever process."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return sum(int(line) for line in answer.split()) << 20


def gpu_name() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return answer.splitlines()[0]


def label(engine: str, device: str, threads: int) -> str:
    return f"{engine} on {device}" + (f", {threads} threads" if device == "cpu" else "")


class Computing:
    """A child, and what it has answered."""

    def __init__(self, engine: str, device: str, threads: int, graph: Path, place: Path) -> None:
        self.name = label(engine, device, threads)
        self._process = subprocess.Popen(
            [*CHILD, engine, device, str(threads), str(graph), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.loaded: dict[str, Any] | None = self._answer()
        self.turns: list[tuple[float, float]] = []

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else None

    def take_turn(self, seconds: float) -> None:
        if self.loaded is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            self.turns.append(tuple(self._answer()))

    def end(self) -> None:
        self._process.communicate()


def compared(
    network: str, places: Sequence[tuple[str, str, int]], turns: int, seconds: float, folder: Path
) -> list[tuple[str, ...]]:
    """Every engine and device with one network, in turns; returns the rows of the table."""
    model = cnn.read(network)
    whole = model.network
    names = [layer.name for layer in whole.layers]
    graph = model.cut(names, whole.inputs, whole.outputs, folder / "subnet").graph
    random = np.random.default_rng(0)
    np.savez(
        folder / "inputs.npz",
        **{
            name: random.standard_normal(whole.tensors[name].shape).astype(np.float32)
            for name in whole.inputs
        },
    )
    children = [Computing(*place, graph, folder) for place in places]
    for _ in range(turns):
        for one in children:
            one.take_turn(seconds)
    for one in children:
        one.end()
    return [
        _row(Path(network.rpartition(":")[2]).stem, one, children[0], folder) for one in children
    ]


def _row(network: str, one: Computing, first: Computing, folder: Path) -> tuple[str, ...]:
    loaded = one.loaded
    if loaded is None:
        return (network, one.name, "refused", *([""] * (len(COLUMNS) - 3)))
    walls, cpus = zip(*one.turns, strict=True)
    return (
        network,
        one.name,
        f"{statistics.median(walls) * 1e3:.3f}",
        f"{statistics.median(cpus) * 1e3:.3f}",
        f"{loaded['load_s']:.2f}",
        f"{loaded['first_s']:.3f}",
        f"{loaded['rss'] / 1e6:.0f}",
        f"{loaded['gpu'] / 1e6:.0f}",
        f"{_deviation(folder / f'{first.name}.npz', folder / f'{one.name}.npz'):.1e}",
    )


def _deviation(expected: Path, measured: Path) -> float:
    worst = 0.0
    with np.load(expected) as theirs, np.load(measured) as ours:
        for name in theirs.files:
            right = theirs[name].astype(np.float64)
            scale = np.abs(right).max(initial=0.0) or 1.0
            worst = max(worst, float(np.abs(ours[name] - right).max(initial=0.0) / scale))
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NET")
    parser.add_argument("--threads", type=int, default=4, help="on the CPU (default: 4)")
    parser.add_argument("--also", action="append", default=[], metavar="ENGINE")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn (default: 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        engine, device, threads, graph, folder = options.child
        child(engine, device, int(threads), Path(graph), Path(folder))
        return 0
    places = [
        ("onnxruntime", "cpu", 1),
        ("onnxruntime", "cpu", options.threads),
        ("onnxruntime", "gpu", 1),
        *((engine, "gpu", 1) for engine in options.also),
    ]
    rows = []
    for network in options.networks:
        with tempfile.TemporaryDirectory(prefix="gpu-") as place:
            found = compared(network, places, options.turns, options.seconds, Path(place))
        rows += found
        if not options.json:
            for row in found:
                print(" | ".join(row), flush=True)
    if options.json:
        table = Table("A GPU beside the CPU", COLUMNS, tuple(rows))
        settings = {
            "GPU": gpu_name(),
            "turns": options.turns,
            "seconds": options.seconds,
            "threads": options.threads,
        }
        print_json(report("gpu", "A GPU beside the CPU", [], settings=settings, tables=[table]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
