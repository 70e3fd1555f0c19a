"""Measures engines side by side: `python -m benchmarks.engines [NET …]`.

Every engine loads every network in a process of its own, which has imported what an agent imports,
with one thread, whole or divided into `--subnets` subnets. The processes of a network then take
turns to compute frames. Per network and engine the table has

- the median time of a frame and the processor time of all threads per frame,
- the memory of the process with the engine and no network, at its peak (loading included) and of no
  file (anonymous); all memory (`nodes.host.usage`, and the code that predictions include)
  ÷ what `partition.prediction` predicts of the network on one device, without channels,
- the largest deviation from ONNX Runtime's outputs, relative to the largest of them.

With `--auto`, every second turn counts as a measurement of a profile: from these turns the engine
is chosen that `engine: auto` takes (`launcher.profile.engines`). The other turns judge the choice.
Figures say how its processor time compares with that of the fastest and of the slowest engine: what
a single thread waits for while other programs use the CPU tells nothing of an engine, and a profile
leaves it out, too.

An engine whose wheel excludes another's can have an interpreter of its own:
`--python onnxruntime-openvino=build/providers/bin/python`.

Networks are what `cnn.read` takes; `int8:NET` is NET quantised by ONNX Runtime's quantiser (QDQ,
calibrated on random frames, per channel where NET's operator set has that). An engine that refuses
a network has its sentence instead of figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import cnn
from benchmarks.report import Figure, Table, print_figures, report
from launcher.profile.engines import compared as choose
from nodes.executors.registry import offers
from nodes.protocol.messages import EngineMemory
from partition.devices import Device, EngineOverhead
from partition.plan import Plan
from partition.planner import make_plan
from partition.pricing.memory_budget import CODE_BYTES, engine_bytes

ENGINES = ("onnxruntime", "openvino")
ASKED_BEST, ASKED_SLOWEST = 1.03, 1.02
"""The most that the engine that `auto` chooses may take, ÷ the fastest and ÷ the slowest engine."""

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures" / "models"
INT8 = "int8:"
SMALL = ("examples/digits/digits.onnx", "onnx-wheel:squeezenet", "onnx-wheel:resnet50")
NETWORKS = (
    *SMALL,
    *(str(path) for path in sorted(FIXTURES.glob("*.onnx"))),
    *(f"{INT8}{network}" for network in SMALL),
)
_PER_CHANNEL_OPSET = 13
"""The first operator set whose `DequantizeLinear` has a scale for each channel."""

COLUMNS = (
    *("network", "engine", "ms/frame", "CPU ms/frame", "load s", "idle MB", "peak MB"),
    *("anonymous MB", "memory ÷ predicted", "deviation"),
)


class Computing:
    """A process that has loaded one network with one engine."""

    def __init__(self, engine: str, graphs: Sequence[Path], folder: Path, python: str) -> None:
        self.engine = engine
        child = [python, "-m", "benchmarks.engines.child"]
        self._process = subprocess.Popen(
            [*child, engine, str(folder), *map(str, graphs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.loaded: dict[str, Any] = self._answer()
        self.turns: list[tuple[float, float]] = []

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"refused": "its process ended without a word"}

    def take_turn(self, seconds: float) -> None:
        """Compute frames for so long."""
        if "refused" not in self.loaded:
            assert self._process.stdin is not None
            self._process.stdin.write(f"{seconds}\n")
            self._process.stdin.flush()
            self.turns.append(tuple(self._answer()))

    def end(self) -> None:
        self._process.communicate()


@dataclass(frozen=True)
class Row:
    """What one engine did with one network; only `refused` is there if it refused it."""

    network: str
    engine: str
    refused: str = ""
    frame_s: float = 0.0
    cpu_s: float = 0.0
    idle_bytes: int = 0
    peak_bytes: int = 0
    anonymous_bytes: int = 0
    memory_ratio: float = 0.0
    load_s: float = 0.0
    deviation: float = 0.0
    cpus_s: tuple[float, ...] = ()

    def texts(self) -> tuple[str, ...]:
        if self.refused:
            return (self.network, self.engine, self.refused, *([""] * (len(COLUMNS) - 3)))
        return (
            self.network, self.engine, f"{self.frame_s * 1e3:.3f}", f"{self.cpu_s * 1e3:.3f}",
            f"{self.load_s:.2f}", f"{self.idle_bytes / 1e6:.1f}", f"{self.peak_bytes / 1e6:.1f}",
            f"{self.anonymous_bytes / 1e6:.1f}", f"{self.memory_ratio:.2f}",
            f"{self.deviation:.1e}",
        )  # fmt: skip


def compared(
    name: str,
    engines: Sequence[str],
    subnets: int,
    turns: int,
    seconds: float,
    place: Path,
    pythons: Mapping[str, str],
) -> list[Row]:
    """Every engine with one network, in turns."""
    model = cnn.read(_quantised(name, place) if name.startswith(INT8) else name)
    plan = divided(model, subnets)
    cut = [
        model.cut(each.layers, each.inputs, each.outputs, place / "graph") for each in plan.phases
    ]
    graphs = [each.graph for each in cut]
    del model
    processes = [
        Computing(engine, graphs, place, pythons.get(engine, sys.executable)) for engine in engines
    ]
    for _ in range(turns):
        for process in processes:
            process.take_turn(seconds)
    for process in processes:
        process.end()
    return [
        _row(_short(name), process, predicted_bytes(plan, process.engine), place)
        for process in processes
    ]


def divided(model: cnn.Model, subnets: int) -> Plan:
    """The network in contiguous subnets of about as many layers."""
    layers = model.network.layers
    devices = tuple(Device(f"subnet{number}") for number in range(subnets))
    assignment = {
        layer.name: devices[index * subnets // len(layers)].name
        for index, layer in enumerate(layers)
    }
    return make_plan(model.network, "", devices, assignment, strategy="", explanation="")


def predicted_bytes(plan: Plan, engine: str) -> int:
    """The memory predicted of one process with all subnets of a plan, without channels."""
    memory = plan.memory.values()
    layers = sum(len(phase.layers) for phase in plan.phases)
    offered = next((offer.memory for offer in offers(engine)), EngineMemory())
    return (
        sum(each.weights_bytes for each in memory)
        + max(each.activations_bytes for each in memory)
        + engine_bytes(len(plan.phases), layers, EngineOverhead(**asdict(offered)))
    )


def _row(network: str, process: Computing, predicted_bytes: int, place: Path) -> Row:
    loaded, engine = process.loaded, process.engine
    if "refused" in loaded:
        return Row(network, engine, loaded["refused"])
    walls, cpus = zip(*process.turns, strict=True)
    return Row(
        network=network,
        engine=engine,
        frame_s=statistics.median(walls),
        cpu_s=statistics.median(cpus),
        idle_bytes=loaded["idle"],
        peak_bytes=loaded["peak"],
        anonymous_bytes=loaded["anonymous"],
        memory_ratio=(loaded["rss"] + CODE_BYTES) / predicted_bytes,
        load_s=loaded["load_s"],
        deviation=_deviation(place / f"{ENGINES[0]}.npz", place / f"{engine}.npz"),
        cpus_s=cpus,
    )


def auto_figures(rows: Sequence[Row]) -> list[Figure]:
    """Return how the engine that `auto` chooses for a network compares with the others."""
    able = [row for row in rows if not row.refused]
    network = rows[0].network
    chosen = choose(
        {row.engine: statistics.median(row.cpus_s[::2]) for row in able},
        {row.engine: row.refused for row in rows if row.refused},
        layers=0,
    ).chosen
    judged = {row.engine: statistics.median(row.cpus_s[1::2]) for row in able}
    best, slowest = min(judged, key=judged.__getitem__), max(judged, key=judged.__getitem__)
    note = "; ".join(f"{name} {seconds * 1e3:.3f} ms" for name, seconds in judged.items())
    return [
        Figure(
            f"{network}: {chosen}, which auto chose, ÷ the fastest ({best})",
            round(judged[chosen] / judged[best], 3),
            at_most=ASKED_BEST,
            note=note,
        ),
        Figure(
            f"{network}: {chosen}, which auto chose, ÷ the slowest ({slowest})",
            round(judged[chosen] / judged[slowest], 3),
            at_most=ASKED_SLOWEST,
        ),
    ]


def _deviation(expected: Path, measured: Path) -> float:
    if not expected.exists():
        return float("nan")
    worst = 0.0
    with np.load(expected) as theirs, np.load(measured) as ours:
        for name in theirs.files:
            right = theirs[name].astype(np.float64)
            scale = np.abs(right).max(initial=0.0) or 1.0
            worst = max(worst, float(np.abs(ours[name] - right).max(initial=0.0) / scale))
    return worst


def _whole(model: cnn.Model, folder: Path) -> Path:
    network = model.network
    layers = [layer.name for layer in network.layers]
    return model.cut(layers, network.inputs, network.outputs, folder).graph


def _quantised(name: str, place: Path) -> str:
    from benchmarks.zoo.quantised import quantise  # noqa: PLC0415

    graph = _whole(cnn.read(name.removeprefix(INT8)), place / "float")
    source, file = place / "float.onnx", place / "int8.onnx"
    proto = onnx.load(graph)
    onnx.save(proto, source)  # in one file, which the quantiser wants
    opset = max(each.version for each in proto.opset_import if not each.domain)
    quantise(source, file, form="QDQ", per_channel=opset >= _PER_CHANNEL_OPSET)
    return str(file)


def _short(name: str) -> str:
    kind = "int8 " if name.startswith(INT8) else ""
    return kind + Path(name.rpartition(":")[2]).stem


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NET")
    parser.add_argument("--engines", nargs="+", default=ENGINES, metavar="ENGINE")
    parser.add_argument("--subnets", type=int, default=1, help="that a network is divided into")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn (default: 1)")
    parser.add_argument("--python", nargs="*", default=(), metavar="ENGINE=PYTHON")
    parser.add_argument("--auto", action="store_true", help="judge the choice of engine: auto")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    pythons = dict(each.split("=", 1) for each in options.python)
    rows, figures = [], []
    for name in options.networks:
        with tempfile.TemporaryDirectory(prefix="engines-") as place:
            found = compared(
                name,
                options.engines,
                options.subnets,
                options.turns,
                options.seconds,
                Path(place),
                pythons,
            )
        rows += found
        if options.auto and any(not row.refused for row in found):
            figures += auto_figures(found)
        if not options.json:
            for row in found:
                print(" | ".join(row.texts()), flush=True)
    table = Table("Time, memory and deviation", COLUMNS, tuple(row.texts() for row in rows))
    settings = {
        "subnets": options.subnets,
        "turns": options.turns,
        "seconds": options.seconds,
        "threads": 1,
    }
    title = f"Engines side by side: {', '.join(options.engines)}"
    notes = ["Other work ran on the machine; engines took turns."]
    data = report("engines", title, figures, settings=settings, tables=[table], notes=notes)
    return print_figures(data, figures, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
