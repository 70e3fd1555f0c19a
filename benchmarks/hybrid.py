"""Runs strategy `hybrid` for 2 to 10 equal devices, and compares it with Table 3 of the paper.

    python -m benchmarks.hybrid [NETWORK …] [--devices 2,4] [--objective memory] [--run 4] [--json]

The networks are VGG16 and YOLOv2, one plan per row. Saving per device is 100 (1 − max β / total β)
under Eq. 2 of Tang & Stefanov (2021), of all layers of the rewritten network against the whole
network on one device; its limit is 100 (1 − 1/n). The speed-up's bound is the work of the whole
network on one device against that of the busiest device, halos and cutting included; the period
adds the cost of the wire. All are figures of the cost model; the paper's speed-ups are
measurements. Seconds are processor time of one thread. With `--run N`, the plan for N devices is
also run, subnet by subnet, and compared with the whole model.

Goals: saving within 1 point of its limit, and a bound of at least 0.95 n.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import cnn
from benchmarks.agreement import LIMIT, agreements, random_frame
from benchmarks.table3.paper import NETWORKS, PAPER
from ga.hybrid.strategy import Hybrid
from partition.devices import Device
from partition.objective import Objective
from partition.plan import Plan
from partition.planner import plan_solution
from partition.prediction.timing import loads
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import Problem

VGG16, YOLOV2 = NETWORKS["vgg16"], NETWORKS["yolov2"]
PUBLISHED = {VGG16: PAPER["vgg16"], YOLOV2: PAPER["yolov2"]}

GOAL_POINTS = 1.0
GOAL_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """One plan; `agreement` is the largest relative error if the plan was run."""

    network: str
    devices: int
    saving_percent: float
    limit_percent: float
    paper_saving_percent: float | None
    bound: float
    paper_speedup: float | None
    predicted_speedup: float
    bytes_per_frame: int
    layers_split: int
    phases: int
    seconds: float
    agreement: float | None

    @property
    def reaches_goals(self) -> bool:
        short = self.limit_percent - self.saving_percent
        agrees = self.agreement is None or self.agreement <= LIMIT
        return short <= GOAL_POINTS and self.bound >= GOAL_SHARE * self.devices and agrees


def measure(
    path: str, model: cnn.Model, count: int, objective: Objective = "period", *, run: bool = False
) -> Row:
    """Plan `model` for `count` devices."""
    devices = tuple(Device(f"d{number}") for number in range(count))
    problem = Problem(model.network, devices, model=model, objective=objective)
    start_s = time.process_time()
    solution = Hybrid().solve(problem)
    seconds = time.process_time() - start_s
    plan = plan_solution(problem, solution, "hybrid")
    alone_s = float(problem.costs.layer_s[:, 0].sum())
    load = loads(devices, plan.phases, plan.channels)
    beta = max(memory.eq2_bytes for memory in plan.memory.values())
    total = float(layer_beta_bytes(model.network).sum())
    published = PUBLISHED.get(path, {}).get(count)
    rewritten = solution.network or model.network
    return Row(
        network=model.network.name,
        devices=count,
        saving_percent=100 * (1 - beta / total),
        limit_percent=100 * (1 - 1 / count),
        paper_saving_percent=None if published is None else published.saving_percent,
        bound=alone_s / max(each.compute_s for each in load.values()),
        paper_speedup=None if published is None else published.speedup,
        predicted_speedup=alone_s / plan.period_s,
        bytes_per_frame=plan.bytes_per_frame,
        layers_split=len({layer.part_of for layer in rewritten.layers} - {""}),
        phases=len(plan.phases),
        seconds=seconds,
        agreement=largest_error(model, plan) if run else None,
    )


def largest_error(model: cnn.Model, plan: Plan) -> float:
    """How far what the plan's subnets compute is from the whole model, relative to its largest."""
    rewritten = model.rewritten(plan.rewrites)
    frame = random_frame(model.network, seed=0)
    return agreements(rewritten, [plan.assignment], frame)[0].crossing


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="benchmarks.hybrid", description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", help="paths; VGG16 and YOLOv2 if none")
    parser.add_argument("--devices", default="2,3,4,5,6,7,8,9,10", help="numbers of devices")
    parser.add_argument("--objective", default="period", choices=["both", "period", "memory"])
    parser.add_argument("--run", type=int, default=0, help="run the plan for so many devices too")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    chosen = parser.parse_args(arguments)
    counts = [int(count) for count in chosen.devices.split(",")]
    rows = []
    if not chosen.json:
        print("network   n  saving  limit  paper   bound ÷ n  paper  period   MB/frame  split  s")
    for path in chosen.networks or (VGG16, YOLOV2):
        model = cnn.read(path)
        for count in counts:
            rows.append(measure(path, model, count, chosen.objective, run=count == chosen.run))
            if not chosen.json:
                print(_line(rows[-1]), flush=True)
    passed = all(row.reaches_goals for row in rows)
    if chosen.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "passed": passed}))
    else:
        print(
            f"goals (within {GOAL_POINTS:g} point, bound {GOAL_SHARE:g} n): "
            f"{'reached' if passed else 'MISSED'}"
        )
    return 0 if passed else 1


def _line(row: Row) -> str:
    paper = "    –" if row.paper_saving_percent is None else f"{row.paper_saving_percent:5.1f}"
    speedup = "    –" if row.paper_speedup is None else f"{row.paper_speedup:4.1f}×"
    ran = "" if row.agreement is None else f"  largest relative error {row.agreement:.1e}"
    return (
        f"{row.network:<8}{row.devices:>3}  {row.saving_percent:6.2f}  {row.limit_percent:5.1f}  "
        f"{paper}  {row.bound:5.2f}×  {row.bound / row.devices:.3f}  {speedup}  "
        f"{row.predicted_speedup:5.2f}×  {row.bytes_per_frame / 1e6:8.1f}  {row.layers_split:5d}  "
        f"{row.seconds:4.1f}{ran}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
