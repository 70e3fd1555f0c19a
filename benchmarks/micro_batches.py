"""Measures frames per second, processor time and memory against the number of frames in a batch.

    python -m benchmarks.micro_batches [--networks digits …] [--batches 1 2 4 8 16] [--engine NAME]

Every network is launched over two nodes of this machine, as a user does, with every batch in turn,
for several rounds. The runtime's processor time is what the agents spend beside the firings of
their engines; sending, taking and counting tensors is the same work for a batch as for a frame.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Table, print_figures, report

NETWORKS = {
    "digits": "examples/digits/digits.onnx",
    "squeezenet": "onnx-wheel:squeezenet",
    "resnet50": "onnx-wheel:resnet50",
}
FRAMES = {"digits": 4000, "squeezenet": 320, "resnet50": 96}
"""So many frames of each network take some seconds with one frame per batch."""

BATCHES = (1, 2, 4, 8, 16)
NODES = ("n0", "n1")

ASKED_SPEEDUP = 4.0
"""How many times the frames per second of single frames digits should reach with 16."""

ASKED_MEMORY = 0.1
"""How far the measured memory may be from the prediction."""


@dataclass(frozen=True)
class Launched:
    """The figures of one launch; seconds are of all nodes together, per frame.

    `memory` is the measured peak over the prediction, of the node where that is furthest from 1.
    """

    batch: int
    frames_per_s: float
    predicted_per_s: float
    latency_s: float
    engine_s: float
    runtime_s: float
    memory: float


def of_report(data: Mapping[str, Any]) -> Launched:
    """Return the figures of what `launch --json` has printed."""
    used = [node for node in data["nodes"] if node["phases"]]
    busy_s = sum(node["busy_s_per_frame"] for node in used)
    ratios = [node["memory_measured_bytes"] / node["memory_predicted_bytes"] for node in used]
    return Launched(
        data["batch"],
        1 / data["period_measured_s"],
        1 / data["period_predicted_s"],
        data["latency_s"],
        busy_s,
        sum(node["cpu_s_per_frame"] for node in used) - busy_s,
        max(ratios, key=lambda ratio: abs(ratio - 1)),
    )


def launch(model: str, batch: int, frames: int, engine: str, folder: Path) -> Launched:
    """Launch a network; raises `RuntimeError` with what it wrote if it does not end well."""
    path = str(Path(model).absolute()) if Path(model).exists() else model
    nodes = [{"name": name, "engine": engine} for name in NODES]
    cluster = {"model": path, "nodes": nodes, "strategy": "sequential", "batch": batch}
    file = folder / "cluster.json"
    file.write_text(json.dumps(cluster), "utf-8")
    program = "from launcher.commands.launch import main; main()"
    given = [str(file), "--frames", str(frames), "--no-verify", "--json"]
    ran = subprocess.run(
        [sys.executable, "-c", program, *given], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise RuntimeError(f"{model}, batch {batch}: {ran.stderr.strip().splitlines()[-1]}")
    return of_report(json.loads(ran.stdout))


def median_of(rounds: Sequence[Launched]) -> Launched:
    """Return the medians of several launches with the same batch."""
    return Launched(
        rounds[0].batch,
        *(
            statistics.median(getattr(each, name) for each in rounds)
            for name in ("frames_per_s", "predicted_per_s", "latency_s", "engine_s", "runtime_s")
        ),
        max((each.memory for each in rounds), key=lambda ratio: abs(ratio - 1)),
    )


def figures(found: Mapping[str, Mapping[int, Launched]]) -> list[Figure]:
    """Return what was asked: of digits the rate, of all the runtime's processor time and memory."""
    measured = []
    for network, by_batch in found.items():
        single = by_batch[min(by_batch)]
        for batch, each in by_batch.items():
            asked = network == "digits" and batch == 16
            measured.append(
                Figure(
                    f"{network}, batch {batch}: frames per second ÷ single frames",
                    round(each.frames_per_s / single.frames_per_s, 2),
                    at_least=ASKED_SPEEDUP if asked else None,
                    note=f"{each.frames_per_s:.1f} frames/s",
                )
            )
            if network == "digits":  # elsewhere firings hide it
                measured.append(
                    Figure(
                        f"{network}, batch {batch}: the runtime's processor time × batch ÷ that of "
                        "single frames",
                        round(each.runtime_s * batch / single.runtime_s, 2),
                        note=f"{each.runtime_s * 1e6:.0f} µs per frame",
                    )
                )
            measured.append(
                Figure(
                    f"{network}, batch {batch}: peak memory ÷ predicted, the furthest node",
                    round(each.memory, 3),
                    at_least=1 - ASKED_MEMORY if network == "resnet50" else None,
                    at_most=1 + ASKED_MEMORY if network == "resnet50" else None,
                )
            )
    return measured


def table(network: str, by_batch: Mapping[int, Launched]) -> Table:
    """Return a row for each batch."""
    columns = (
        *("batch", "frames/s", "predicted", "latency, ms", "engine, µs/frame"),
        *("runtime, µs/frame", "memory ÷ predicted"),
    )
    rows = (
        (
            str(each.batch),
            f"{each.frames_per_s:.1f}",
            f"{each.predicted_per_s:.1f}",
            f"{each.latency_s * 1e3:.1f}",
            f"{each.engine_s * 1e6:.0f}",
            f"{each.runtime_s * 1e6:.0f}",
            f"{each.memory:.3f}",
        )
        for each in by_batch.values()
    )
    return Table(network, columns, tuple(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 1 if one is not what was asked."""
    parser = argparse.ArgumentParser(prog="benchmarks.micro_batches", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES))
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found: dict[str, dict[int, Launched]] = {}
    with tempfile.TemporaryDirectory(prefix="micro-batches-") as name:
        for network in given.networks:
            rounds: dict[int, list[Launched]] = {batch: [] for batch in given.batches}
            for _ in range(given.rounds):
                for batch, so_far in rounds.items():
                    frames = max(FRAMES[network], 6 * batch)
                    ran = launch(NETWORKS[network], batch, frames, given.engine, Path(name))
                    so_far.append(ran)
                    if not given.json:
                        sys.stderr.write(f"{network}: {ran}\n")
            found[network] = {batch: median_of(each) for batch, each in rounds.items()}
    measured = figures(found)
    data = report(
        "micro_batches",
        f"Frames computed at once ({given.engine})",
        measured,
        settings={"nodes": len(NODES), "rounds": given.rounds, "frames": FRAMES},
        tables=[table(network, by_batch) for network, by_batch in found.items()],
        notes=["Medians of all rounds; each round has every batch in turn."],
    )
    return print_figures(data, measured, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
