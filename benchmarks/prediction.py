"""Compares runs with their predictions: `python -m benchmarks.prediction [--json]`.

Plans of three networks on two and three nodes of this machine, in both orders, are run by the
launcher and simulated (`partition.prediction.simulation`) with what the same run's agents measured
while they warmed up. For the results that arrive while the pipeline is full it compares the
**period** (the median over blocks of eight frames of the mean time between results), the
**latency** (median time from a frame's departure at the launcher to its result, the source always
having the next frame), and the **most bytes that the incoming FIFOs of a node held** at once. A
second prediction uses the processor seconds that each phase took in the run itself; its remaining
error is the model's and not the profile's.

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

from benchmarks.lab.turns import OneFrame
from benchmarks.report import Figure, arguments, report, show
from benchmarks.undisturbed import Others, undisturbed
from cnn import Model, read
from ga.strategies import find_strategy
from launcher.config.run import RunConfig
from launcher.plan.prediction import with_warmup
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Node, RunOptions, RunResult, SubnetFiles
from nodes.protocol.messages import HOST, Order
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan
from partition.prediction.simulation import full_frames, predict
from partition.prediction.timing import with_measured_phases
from partition.pricing.run_costs import RunCosts
from partition.strategies.base import Problem, Solution

MACHINE = "this machine"
ALTERNATING = "alternating"
"""Runs of layers in turn: many phases on every node."""

CPUS = tuple(sorted(os.sched_getaffinity(0))[:2])
"""Those that nodes are bound to, in turn; the launcher is bound to the first."""

BLOCK = 8
"""Results that a period is averaged over, before the median is taken."""


@dataclass(frozen=True)
class Network:
    """A model, and how many frames of it are streamed."""

    source: str
    frames: int
    run_of_layers: int
    """How many layers in a row one node gets under `alternating`."""


NETWORKS = {
    "digits": Network("examples/digits/digits.onnx", 600, 2),
    "squeezenet": Network("onnx-wheel:squeezenet", 240, 8),
    "resnet50": Network("onnx-wheel:resnet50", 100, 12),
}


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
    Case("squeezenet", 2, "sequential"),
    Case("squeezenet", 2, ALTERNATING),
    Case("squeezenet", 2, ALTERNATING, "strict"),
    Case("squeezenet", 3, ALTERNATING),
    Case("squeezenet", 2, "batch-split"),
    Case("squeezenet", 2, "horizontal"),
    Case("squeezenet", 2, "tiles"),
    Case("resnet50", 2, "sequential"),
    Case("resnet50", 2, ALTERNATING),
    Case("resnet50", 2, ALTERNATING, "strict"),
    Case("resnet50", 3, "sequential"),
    Case("resnet50", 3, ALTERNATING),
)


@dataclass(frozen=True)
class Figures:
    """One run or its prediction: seconds, and bytes per node."""

    period_s: float
    latency_s: float
    fifo_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Compared:
    """One run: measured, predicted from warm-up times, predicted from the run's own times."""

    measured: Figures
    predicted: Figures
    from_own_times: Figures
    others: float


class Prepared:
    """A case's plan and subnets."""

    def __init__(self, case: Case, model: Model, folder: Path) -> None:
        self.case = case
        self.frames = NETWORKS[case.network].frames
        cpus = CPUS
        self.host_cpus = CPUS[:1]
        names = [f"n{i}" for i in range(case.nodes)]
        self.nodes = tuple(Node(name, cpus=(cpus[i % len(cpus)],)) for i, name in enumerate(names))
        devices = tuple(Device(n, host=MACHINE, host_cores=len(cpus)) for n in names)
        solution = solved(model, case, devices)
        rewritten = model.rewritten(solution.rewrites)
        self.plan = make_plan(
            rewritten.network,
            model.digest,
            devices,
            solution.assignment,
            strategy=case.strategy,
            explanation=solution.explanation,
            rewrites=solution.rewrites,
        )
        self.subnets = {}
        for phase in self.plan.phases:
            cut = rewritten.cut(phase.layers, phase.inputs, phase.outputs, folder)
            self.subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)
        random = np.random.default_rng(0)
        tensors = model.network.tensors
        frame = {
            name: random.standard_normal(tensors[name].shape, dtype=np.float32)
            for name in model.network.inputs
        }
        self.inputs = OneFrame(frame, self.frames)

    def run(self, cache: Path) -> Compared:
        others = Others()
        result = run(
            self.plan, self.nodes, self.subnets, listed(self.inputs, lambda _, __: None),
            lambda _: None,
            RunOptions(RunConfig(order=self.case.order), cache=cache),
        )  # fmt: skip
        share = others.share()
        held = {name: stats.fifo_peak_bytes for name, stats in result.stats.items()}
        return Compared(
            figures(result.sent_s, result.received_s, held),
            self.predicted(with_warmup(self.plan, result), result),
            self.predicted(with_own_times(self.plan, result), result),
            share,
        )

    def predicted(self, plan: Plan, result: RunResult) -> Figures:
        costs = RunCosts.known(
            plan.devices,
            host=MACHINE,
            cpus={node.name: node.cpus for node in self.nodes} | {HOST: self.host_cpus},
            message_s=result.message_s,
            byte_s=result.byte_s,
        )
        found = predict(plan, costs, order=self.case.order, frames=self.frames)
        return figures(found.sent_s, found.received_s, found.fifo_bytes)


def solved(model: Model, case: Case, devices: tuple[Device, ...]) -> Solution:
    if case.strategy != ALTERNATING:
        return find_strategy(case.strategy).solve(Problem(model.network, devices, model=model))
    run_of_layers = NETWORKS[case.network].run_of_layers
    assignment = {
        layer.name: devices[i // run_of_layers % len(devices)].name
        for i, layer in enumerate(model.network.layers)
    }
    return Solution(assignment, "runs of layers in turn")


def figures(
    sent_s: tuple[float, ...], received_s: tuple[float, ...], fifo_bytes: Mapping[str, int]
) -> Figures:
    """The same for both, of the frames that came while the pipeline was full."""
    full = full_frames(sent_s, received_s)
    marks = [received_s[k] for k in full[::BLOCK]]
    periods = [(two - one) / BLOCK for one, two in itertools.pairwise(marks)]
    latencies = [received_s[k] - sent_s[k] for k in full]
    return Figures(statistics.median(periods), statistics.median(latencies), dict(fifo_bytes))


def with_own_times(plan: Plan, result: RunResult) -> Plan:
    """The plan with the mean seconds that its phases took in the run itself."""
    seconds = {}
    for device, stats in result.stats.items():
        own = sorted((p for p in plan.phases if p.device == device), key=lambda p: p.index)
        for phase, cpu_s, firings in zip(own, stats.phase_cpu_s, stats.firings, strict=True):
            seconds[phase.name] = cpu_s / firings
    return with_measured_phases(plan, seconds)


def main() -> int:
    parser = arguments("benchmarks.prediction", __doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--case", default="", help="only cases with this in their names")
    options = parser.parse_args()
    cases = [c for c in CASES if c.network in options.networks and options.case in str(c)]
    found: dict[str, list[Compared]] = {str(case): [] for case in cases}
    os.sched_setaffinity(0, CPUS[:1])
    with tempfile.TemporaryDirectory(prefix="prediction-") as place, undisturbed() as means:
        models = {name: read(NETWORKS[name].source) for name in options.networks}
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
        notes=[
            "Predicted ÷ measured, once from what the agents measured while they warmed up, and "
            "once from what each phase took in the run itself."
        ],
        data={case: [asdict(one) for one in runs] for case, runs in found.items()},
    )
    return show(data, as_json=options.json)


def compared(case: str, runs: Sequence[Compared]) -> Iterator[Figure]:
    """How far the predictions of a case are from its runs."""
    for key, how in (("predicted", "predicted"), ("from_own_times", "from its own times")):
        pairs = [(getattr(one, key), one.measured) for one in runs]
        for what, value in (
            ("period", lambda x: x.period_s),
            ("latency", lambda x: x.latency_s),
            ("bytes in FIFOs", lambda x: max(1, sum(x.fifo_bytes.values()))),
        ):
            ratios = [value(theirs) / value(ours) for theirs, ours in pairs]
            yield Figure.of(f"{case}: {what}, {how} ÷ measured", ratios)


if __name__ == "__main__":
    sys.exit(main())
