"""Runs the paper's genetic algorithm on ResNet50 for 2 to 10 devices, and compares it with Table 3.

    python -m benchmarks.ga_table3 [--json] [--unseeded] [--seed N]

Memory saving per device is 100 (1 − max β / total β) under Eq. 2 of Tang & Stefanov (2021). The
paper's parameters are used: 5000 individuals, 100 generations (all of them, also when an optimum is
proved earlier), 5 % mutation. `--unseeded` starts from random individuals only, as the paper does.
Seconds are processor time of one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass

import cnn
from benchmarks.table3.paper import NETWORKS, PAPER
from ga.paper import PaperParameters, evolve, saving_percent
from partition.devices import Device
from partition.strategies.base import Problem

NAME = "resnet50"
GOAL_POINTS = 0.2
GOAL_S = 20.0


@dataclass(frozen=True, slots=True)
class Row:
    devices: int
    saving_percent: float
    limit_percent: float
    paper_percent: float
    seconds: float

    @property
    def reaches_goals(self) -> bool:
        return self.limit_percent - self.saving_percent <= GOAL_POINTS and self.seconds <= GOAL_S


def measure(seed: int, parameters: PaperParameters) -> list[Row]:
    network = cnn.read(NETWORKS[NAME]).network
    rows = []
    for count, published in PAPER[NAME].items():
        problem = Problem(network, tuple(Device(f"d{i}") for i in range(count)), seed=seed)
        start_s = time.process_time()
        evolution = evolve(problem, parameters, lambda *_: None)
        seconds = time.process_time() - start_s
        saving = saving_percent(problem, evolution.best)
        rows.append(Row(count, saving, 100 * (1 - 1 / count), published.saving_percent, seconds))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--unseeded", action="store_true", help="random first population only")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    seeded = 0.0 if arguments.unseeded else PaperParameters().seeded
    parameters = PaperParameters(seeded=seeded, stop_when_optimal=False)
    rows = measure(arguments.seed, parameters)
    passed = all(row.reaches_goals for row in rows)
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "passed": passed}))
        return 0 if passed else 1
    print("devices  saving %  1 − 1/n  paper %  seconds")
    for row in rows:
        print(
            f"{row.devices:7d}  {row.saving_percent:8.3f}  {row.limit_percent:7.3f}  "
            f"{row.paper_percent:7.1f}  {row.seconds:7.2f}"
        )
    print(
        f"goals (within {GOAL_POINTS} points, {GOAL_S:.0f} s): {'reached' if passed else 'MISSED'}"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
