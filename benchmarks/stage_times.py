"""Compares measured and estimated times of stages: `python -m benchmarks.stage_times [NET …]`.

Each network is cut into contiguous stages by `sequential`, which makes them equal by the analytic
estimate of `partition.pricing.compute_time` and `partition.prediction.timing`. ONNX Runtime
computes all stages in turn, on one thread; a stage's time is the median of its processor time. The
report gives measured ÷ predicted for each stage, relative to the mean of all, because a machine
that is uniformly faster than the estimate is no error. Where it differs from 1, devices wait for
the slowest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import cnn
from benchmarks.lab.replica import frame
from benchmarks.report import Figure, print_json, report
from nodes.executors.base import LoadOptions
from nodes.executors.registry import open_executor
from partition.devices import Device
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem
from partition.strategies.contiguous.sequential import Sequential

NETWORKS = tuple(
    f"onnx-wheel:{name}"
    for name in ("resnet50", "squeezenet", "densenet121", "shufflenet", "vgg19")
)
WARM_UP = 2


def divided(model: cnn.Model, stages: int) -> Plan:
    """The network in contiguous stages on equal devices."""
    devices = tuple(Device(f"stage{number}") for number in range(stages))
    problem = Problem(model.network, devices)
    return plan_solution(problem, Sequential().solve(problem), "")


def measured(model: cnn.Model, plan: Plan, turns: int, place: Path) -> list[float]:
    """Seconds of processor time of each phase, the median over the turns."""
    options = LoadOptions(threads=1)
    executor = open_executor("onnxruntime", place / "cache")
    cuts = [model.cut(each.layers, each.inputs, each.outputs, place) for each in plan.phases]
    executor.prepare([cut.graph for cut in cuts], options)
    subnets = [executor.load(cut.graph, options) for cut in cuts]
    frames = [frame(subnet) for subnet in subnets]
    seconds: list[list[float]] = [[] for _ in subnets]
    for _ in range(WARM_UP + turns):
        for subnet, inputs, own in zip(subnets, frames, seconds, strict=True):
            began_s = time.thread_time()
            subnet.run(inputs)
            own.append(time.thread_time() - began_s)
    executor.close()
    return [statistics.median(own[WARM_UP:]) for own in seconds]


def compared(name: str, stages: int, turns: int) -> NDArray[np.float64]:
    """Measured ÷ predicted of each stage, relative to all of them."""
    model = cnn.read(name)
    plan = divided(model, stages)
    with tempfile.TemporaryDirectory(prefix="stage-times-") as place:
        found = np.array(measured(model, plan, turns, Path(place)))
    predicted = np.array([phase.predicted_s for phase in plan.phases])
    return np.asarray((found / found.sum()) / (predicted / predicted.sum()))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NET")
    parser.add_argument("--stages", type=int, default=6)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    figures = []
    for name in options.networks:
        ratios = compared(name, options.stages, options.turns)
        shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        spread = round(float(ratios.std()), 3)
        figures.append(Figure(f"{name}: standard deviation", spread, note=f"stages: {shown}"))
        if not options.json:
            print(f"{name}: {spread}  ({shown})", flush=True)
    if options.json:
        title = "Stages' measured time against the estimate"
        settings = {"stages": options.stages, "turns": options.turns}
        notes = [
            "Measured ÷ predicted of each stage, relative to all: medians of turns, stages in "
            "turn. The slowest stage sets the pace of a pipeline."
        ]
        print_json(report("stage_times", title, figures, settings=settings, notes=notes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
