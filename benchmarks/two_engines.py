"""Measures two stages with two engines against the whole network with each of them alone.

    python -m benchmarks.two_engines [--networks squeezenet …] [--engines onnxruntime openvino]

This is the shape of the main experiment of Velasco-Montero et al. (2023): a network in two stages
on two processors, each with an engine of its own, by their algorithm `two-stage`. Here the
processors are two CPUs of this machine, to which the agents are bound. The three clusters are
launched in turns. Results are compared with the whole model's in the first round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Figure, Table, print_figures, report

NETWORKS = {"squeezenet": 400, "resnet50": 80}
"""The fixtures, and how many frames of each take some seconds."""

PAPER = "1.14 to 2.5"
"""Their speed-ups by two heterogeneous stages over the faster processor alone."""


@dataclass(frozen=True)
class Launched:
    """What one launch found."""

    frames_per_s: float
    layers: tuple[int, ...]
    error: float | None


def launch(network: str, engines: Sequence[tuple[int, str]], check: bool, folder: Path) -> Launched:
    """Launch a network on one node per (CPU, engine); raises `RuntimeError` with what it wrote."""
    nodes = [{"name": f"cpu{cpu}", "engine": name, "cpus": [cpu]} for cpu, name in engines]
    cluster = {
        "model": f"onnx-wheel:{network}",
        "nodes": nodes,
        "strategy": "two-stage" if len(nodes) > 1 else "sequential",
        "frames": NETWORKS[network],
        "verify": check,
    }
    file = folder / "cluster.json"
    file.write_text(json.dumps(cluster), "utf-8")
    program = "from launcher.commands.launch import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program, str(file), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"{network}: {ran.stderr.strip().splitlines()[-1]}")
    data: dict[str, Any] = json.loads(ran.stdout)
    layers = tuple(node["layers"] for node in data["nodes"])
    return Launched(1 / data["period_measured_s"], layers, data["max_relative_error"])


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.two_engines", description=__doc__)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--engines", nargs=2, default=("onnxruntime", "openvino"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    one, other = given.engines
    clusters = {
        f"{one} alone": [(0, one)],
        f"{other} alone": [(0, other)],
        "two stages": [(0, one), (1, other)],
    }
    figures, rows = [], []
    with tempfile.TemporaryDirectory(prefix="two-engines-") as name:
        for network in given.networks:
            found: dict[str, list[Launched]] = {what: [] for what in clusters}
            for number in range(given.rounds):
                for what, nodes in clusters.items():
                    found[what].append(launch(network, nodes, not number, Path(name)))
            rates = {
                what: statistics.median(each.frames_per_s for each in launches)
                for what, launches in found.items()
            }
            best = max(rates[f"{one} alone"], rates[f"{other} alone"])
            stages = found["two stages"][0]
            figures.append(
                Figure(
                    f"{network}: frames/s of two stages ÷ of the faster engine alone",
                    round(rates["two stages"] / best, 2),
                    note=f"theirs, of other networks on a Jetson TX2: {PAPER}",
                )
            )
            rows.append(
                (
                    network,
                    *(f"{rates[what]:.1f}" for what in clusters),
                    f"{stages.layers[0]} + {stages.layers[1]}",
                    f"{stages.error:.1e}",
                )
            )
    data = report(
        "two_engines",
        f"Two stages with two engines: {one} and {other}",
        figures,
        settings={"rounds": given.rounds, "frames": NETWORKS},
        tables=[
            Table(
                "Frames per second",
                ("network", *clusters, "layers of the stages", "largest relative difference"),
                tuple(rows),
            )
        ],
        notes=["Medians of all rounds; other work ran on the machine."],
    )
    return print_figures(data, figures, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
