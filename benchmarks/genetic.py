"""Measures what NSGA-II adds to annealing in `vertical`: `python -m benchmarks.genetic`.

    python -m benchmarks.genetic [--networks ResNet50,YOLOv2] [--devices 4,10] [--seeds 10] [--json]

The search runs as it is, and by annealing alone, which prices NSGA-II's number of states too.
Processor seconds are printed as well. Scores are those by which the solution is chosen
(`ga.objectives`), sums of logarithms of costs: 0.01 is one per cent of the period. Wilcoxon's
signed-rank test over the seeds says whether the scores differ: without a small p, they do not.

Three networks on 4, 6 and 10 devices with ten seeds take 40 minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import cnn
from benchmarks.segmentation import MODELS
from benchmarks.table3.paper import NETWORKS
from cnn.network import Network
from ga.genes import genes
from ga.objectives import PREFERENCES, Objectives
from ga.vertical import Effort, Vertical
from partition.devices import Device
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import Problem

FILES = {
    "ResNet50": NETWORKS["resnet50"],
    "DenseNet121": str(MODELS / "DenseNet121.onnx"),
    "YOLOv2": NETWORKS["yolov2"],
}


@dataclass(frozen=True, slots=True)
class Row:
    """Mean scores, points on the front and seconds of both searches, and the p of the test."""

    network: str
    devices: int
    seeds: int
    score: float
    score_annealing: float
    p: float
    front: float
    front_annealing: float
    seconds: float
    seconds_annealing: float


def annealing_alone(problem: Problem, effort: Effort) -> Effort:
    """Return the effort without generations, whose chains price as many states as both do."""
    bred = effort.nsga.individuals * effort.nsga.generations
    steps = effort.steps(genes(problem).network, len(problem.devices)) + bred // effort.chains
    return replace(
        effort,
        nsga=replace(effort.nsga, generations=0),
        least_steps=steps,
        most_steps=steps,
        fast_steps=effort.fast(problem.network, len(problem.devices)),
    )


def measure(network: Network, name: str, devices: int, seeds: int) -> Row:
    """Compare both searches over some seeds."""
    from scipy.stats import wilcoxon  # noqa: PLC0415 (slow to import)

    found: list[list[tuple[float, int, float]]] = [[], []]
    for seed in range(seeds):
        problem = Problem(network, tuple(Device(f"d{i}") for i in range(devices)), seed=seed)
        exact = Objectives(problem, problem.costs, layer_beta_bytes(network))
        for own, effort in zip(found, (Effort(), annealing_alone(problem, Effort())), strict=True):
            start_s = time.process_time()
            solution = Vertical(effort=effort).solve(problem)
            seconds = time.process_time() - start_s
            priced = exact.price(problem.numbers(solution.assignment)[None])
            score = exact.score(priced, PREFERENCES[problem.objective], smooth=False)
            own.append((float(score[0]), len(solution.front), seconds))
    usual, alone = ([each[0] for each in own] for own in found)
    p = 1.0 if usual == alone else float(wilcoxon(usual, alone).pvalue)
    means = [[statistics.mean(column) for column in zip(*own, strict=True)] for own in found]
    (score, front, seconds), (score_alone, front_alone, seconds_alone) = means
    return Row(
        name, devices, seeds, score, score_alone, p, front, front_alone, seconds, seconds_alone
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each network and number of devices."""
    parser = argparse.ArgumentParser(prog="benchmarks.genetic", description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(FILES), help=f"of {', '.join(FILES)}")
    parser.add_argument("--devices", default="4,6,10", help="numbers of devices")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    chosen = parser.parse_args(arguments)
    rows = []
    for name in chosen.networks.split(","):
        network = cnn.read(FILES[name]).network
        for count in map(int, chosen.devices.split(",")):
            row = measure(network, name, count, chosen.seeds)
            rows.append(row)
            if not chosen.json:
                print(_line(row), flush=True)
    if chosen.json:
        print(json.dumps({"rows": [asdict(row) for row in rows]}))
    return 0


def _line(row: Row) -> str:
    return (
        f"{row.network:12} {row.devices:2} devices: score {row.score:.4f}, annealing alone "
        f"{row.score_annealing:.4f} (p {row.p:.3f}); front {row.front:.0f} and "
        f"{row.front_annealing:.0f}; {row.seconds:.1f} and {row.seconds_annealing:.1f} s"
    )


if __name__ == "__main__":
    raise SystemExit(main())
