"""Compares runs with their predictions: `python -m benchmarks.prediction [--json]`.

Plans of three networks on two and three nodes of this machine, in both orders, are run by the
launcher and simulated (`partition.prediction.simulation`) with what the same run's agents measured
while they warmed up. For the results that arrive while the pipeline is full it compares the
**period** (the median over blocks of eight frames of the mean time between results), the
**latency** (median time from a frame's departure at the launcher to its result, the source always
having the next frame), and the **most bytes that the incoming FIFOs of a node held** at once.

All cases take turns, `--repetitions` times; the report gives each run and the medians. Each node is
bound to a CPU (of three, the first and the last share one) and computes with one thread; the
launcher is bound to the first one's.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import Figure, arguments, report, show
from benchmarks.undisturbed import undisturbed
from cnn import Model, read
from ga.strategies import find_strategy
from launcher.config.run import RunConfig
from launcher.plan.prediction import with_warmup
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Node, RunOptions, SubnetFiles
from nodes.protocol.messages import HOST, Order
from partition.devices import Device
from partition.planner import make_plan
from partition.prediction.simulation import full_frames, predict
from partition.pricing.run_costs import RunCosts
from partition.strategies.base import Problem, Solution

MACHINE = "this machine"
ALTERNATING = "alternating"
"""Runs of layers in turn: many phases on every node."""

CPUS = tuple(sorted(os.sched_getaffinity(0))[:2])
"""Those that nodes are bound to, in turn; the launcher is bound to the first."""

BLOCK = 8
"""Results that a period is averaged over, before the median is taken."""

NETWORKS: Mapping[str, tuple[str, int, int]] = {
    "digits": ("examples/digits/digits.onnx", 600, 2),
    "squeezenet": ("onnx-wheel:squeezenet", 240, 8),
    "resnet50": ("onnx-wheel:resnet50", 100, 12),
}
"""Name → model, frames that are streamed, and layers in a row of one node under `alternating`."""


@dataclass(frozen=True)
class Case:
    """One plan, run in one order."""

    network: str
    nodes: int
    strategy: str
    order: Order = "pipelined"

    def __str__(self) -> str:
        return f"{self.network}, {self.nodes} nodes, {self.strategy}, {self.order}"


CASES = (
    Case("digits", 2, "sequential"),
    Case("digits", 2, ALTERNATING),
    Case("digits", 3, "sequential"),
    *(Case("squeezenet", 2, s) for s in ("sequential", "batch-split", "horizontal", "tiles")),
    Case("squeezenet", 2, ALTERNATING),
    Case("squeezenet", 2, ALTERNATING, "strict"),
    Case("squeezenet", 3, ALTERNATING),
    *(Case("resnet50", n, s) for n in (2, 3) for s in ("sequential", ALTERNATING)),
    Case("resnet50", 2, ALTERNATING, "strict"),
)


@dataclass(frozen=True)
class Figures:
    """One run or its prediction: seconds, and the bytes in FIFOs of all nodes."""

    period_s: float
    latency_s: float
    fifo_bytes: int


class Prepared:
    """A case's plan and subnets."""

    def __init__(self, case: Case, model: Model, folder: Path) -> None:
        self.case = case
        names = [f"n{i}" for i in range(case.nodes)]
        self.nodes = tuple(Node(name, cpus=(CPUS[i % len(CPUS)],)) for i, name in enumerate(names))
        devices = tuple(Device(n, host=MACHINE, host_cores=len(CPUS)) for n in names)
        solution = solved(model, case, devices)
        rewritten = model.rewritten(solution.rewrites)
        self.plan = make_plan(
            rewritten.network, model.digest, devices, solution.assignment, strategy=case.strategy,
            explanation=solution.explanation, rewrites=solution.rewrites,
        )  # fmt: skip
        self.subnets = {}
        for phase in self.plan.phases:
            cut = rewritten.cut(phase.layers, phase.inputs, phase.outputs, folder)
            self.subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)
        random, tensors = np.random.default_rng(0), model.network.tensors
        self.frame = {
            name: random.standard_normal(tensors[name].shape, dtype=np.float32)
            for name in model.network.inputs
        }

    def run(self, cache: Path) -> tuple[Figures, Figures]:
        """Run it; return what was predicted, and what was measured."""
        frames = NETWORKS[self.case.network][1]
        result = run(
            self.plan, self.nodes, self.subnets,
            listed([self.frame] * frames, lambda _, __: None), lambda _: None,
            RunOptions(RunConfig(order=self.case.order), cache=cache),
        )  # fmt: skip
        plan = with_warmup(self.plan, result)
        costs = RunCosts.known(
            plan.devices,
            host=MACHINE,
            cpus={node.name: node.cpus for node in self.nodes} | {HOST: CPUS[:1]},
            message_s=result.message_s,
            byte_s=result.byte_s,
        )
        found = predict(plan, costs, order=self.case.order, frames=frames)
        held = [stats.fifo_peak_bytes for stats in result.stats.values()]
        return (
            figures(found.sent_s, found.received_s, list(found.fifo_bytes.values())),
            figures(result.sent_s, result.received_s, held),
        )


def solved(model: Model, case: Case, devices: tuple[Device, ...]) -> Solution:
    if case.strategy != ALTERNATING:
        return find_strategy(case.strategy).solve(Problem(model.network, devices, model=model))
    run_of_layers = NETWORKS[case.network][2]
    assignment = {
        layer.name: devices[i // run_of_layers % len(devices)].name
        for i, layer in enumerate(model.network.layers)
    }
    return Solution(assignment, "runs of layers in turn")


def figures(
    sent_s: Sequence[float], received_s: Sequence[float], fifo_bytes: Sequence[int]
) -> Figures:
    """The same for both, of the frames that came while the pipeline was full."""
    full = full_frames(tuple(sent_s), tuple(received_s))
    marks = [received_s[k] for k in full[::BLOCK]]
    periods = [(two - one) / BLOCK for one, two in itertools.pairwise(marks)]
    latencies = [received_s[k] - sent_s[k] for k in full]
    held = max(1, sum(fifo_bytes))
    return Figures(statistics.median(periods), statistics.median(latencies), held)


def main() -> int:
    parser = arguments("benchmarks.prediction", __doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    options = parser.parse_args()
    cases = [case for case in CASES if case.network in options.networks]
    found: dict[str, list[tuple[Figures, Figures]]] = {str(case): [] for case in cases}
    os.sched_setaffinity(0, CPUS[:1])
    with tempfile.TemporaryDirectory(prefix="prediction-") as place, undisturbed() as means:
        models = {name: read(NETWORKS[name][0]) for name in options.networks}
        prepared = [Prepared(case, models[case.network], Path(place) / "s") for case in cases]
        for number in range(options.repetitions):
            for one in prepared:
                print(f"{number + 1}: {one.case}", file=sys.stderr, flush=True)
                found[str(one.case)].append(one.run(Path(place) / "cache"))
    data = report(
        "prediction",
        "Runs and their predictions",
        [row for case, runs in found.items() for row in compared(case, runs)],
        settings={"repetitions": options.repetitions, "priority": means},
        notes=["Predicted, from what the agents measured while they warmed up, ÷ measured."],
        data={
            case: [[asdict(one) for one in both] for both in runs] for case, runs in found.items()
        },
    )
    return show(data, as_json=options.json)


def compared(case: str, runs: Sequence[tuple[Figures, Figures]]) -> Iterator[Figure]:
    """How far the predictions of a case are from its runs."""
    for what, key in (("period", "period_s"), ("latency", "latency_s"), ("FIFOs", "fifo_bytes")):
        ratios = [getattr(theirs, key) / getattr(ours, key) for theirs, ours in runs]
        yield Figure.of(f"{case}: {what}, predicted ÷ measured", ratios)


if __name__ == "__main__":
    sys.exit(main())
