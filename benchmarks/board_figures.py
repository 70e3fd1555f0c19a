"""Compares what a board measured of itself with networks: `python -m benchmarks.board_figures`.

The board is measured as an agent does (`nodes.measuring`), and each network's time is foreseen from
these figures. ONNX Runtime then computes the whole network, and its contiguous stages in turn, on
one thread. The report has predicted ÷ measured of whole networks, the standard deviation of
measured ÷ predicted over the stages, and what measuring took.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

import cnn
from benchmarks.report import Figure, print_json, report
from benchmarks.stage_times import divided, measured
from nodes.host.process import python_command
from nodes.measuring.board import CHILD
from nodes.protocol.schema import FIGURES
from partition.measured.board import MeasuredFigures, with_figures
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem
from partition.strategies.contiguous.sequential import Sequential

NETWORKS = (
    "onnx-wheel:resnet50",
    "builtin:yolov2",
    "onnx-wheel:densenet121",
    "onnx-wheel:squeezenet",
    "onnx-wheel:vgg19",
    "onnx-wheel:shufflenet",
)


def board(cache: Path) -> tuple[MeasuredFigures, float, float]:
    """The figures of this machine, and the seconds and the bytes that measuring took."""
    asked = {"engine": "onnxruntime", "device": "cpu", "cache": str(cache), "threads": 1}
    asked |= {"loopback": "tcp://127.0.0.1:0", "guarded": False}
    began_s = time.monotonic()
    child = subprocess.run(
        python_command(CHILD), input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    passed_s, answer = time.monotonic() - began_s, json.loads(child.stdout)
    if "figures" not in answer:
        sys.exit(f"this machine could not be measured: {answer['reason']}")
    figures = MeasuredFigures(**asdict(FIGURES.unpack(answer["figures"])))
    return figures, passed_s, answer["peak_bytes"]


def foreseen(model: cnn.Model, figures: MeasuredFigures, stages: int) -> tuple[Plan, list[float]]:
    """The network in stages, and the seconds of each on this board."""
    plan = divided(model, stages)
    devices = tuple(with_figures(device, figures) for device in plan.devices)
    problem = Problem(model.network, devices, pins=plan.assignment)
    again = plan_solution(problem, Sequential().solve(problem), "")
    seconds = {frozenset(phase.layers): phase.predicted_s for phase in again.phases}
    return plan, [seconds[frozenset(phase.layers)] for phase in plan.phases]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NET")
    parser.add_argument("--stages", type=int, default=12)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="board-figures-") as folder:
        found, passed_s, peak_bytes = board(Path(folder))
        for name in options.networks:
            model = cnn.read(name)
            ratios = {}
            for stages in (1, options.stages):
                plan, predicted = foreseen(model, found, stages)
                taken = measured(model, plan, options.turns, Path(folder))
                ratios[stages] = np.array(taken) / np.array(predicted)
            spread = ratios[options.stages]
            rows.append((name, float(1 / ratios[1][0]), float(spread.std() / spread.mean())))
            if not options.json:
                print(f"{name}: {rows[-1][1]:.2f} of the whole, {rows[-1][2]:.3f} over stages")
    figures = [Figure("time to measure the board", round(passed_s, 2), "s", at_most=2.0)]
    figures.append(Figure("memory to measure the board", round(peak_bytes / 1e6), "MB"))
    for name, whole, deviation in rows:
        note = f"standard deviation over {options.stages} stages: {deviation:.3f}"
        figures.append(Figure(f"{name}: predicted ÷ measured", round(whole, 2), note=note))
    if options.json:
        title = "What a board measures of itself, and networks on it"
        settings = {"stages": options.stages, "turns": options.turns}
        print_json(report("board_figures", title, figures, settings=settings))
    else:
        print(f"measuring took {passed_s:.2f} s and {peak_bytes / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
