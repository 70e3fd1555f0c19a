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

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.lab.turns import OneFrame
from benchmarks.undisturbed import Others, load, undisturbed
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
from partition.prediction.simulation import Prediction, full_frames, predict
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
    """Of one run, or of its prediction: seconds, and bytes per node."""

    period_s: float
    latency_s: float
    fifo_bytes: Mapping[str, int]


@dataclass(frozen=True)
class Compared:
    """One run: measured, predicted from warm-up times, predicted from the run's own times."""

    case: str
    phases: int
    measured: Figures
    predicted: Figures
    from_own_times: Figures
    others: float
    busy_ms_per_frame: Mapping[str, float]
    warmup_ms: Mapping[str, float]
    computed_ms_per_frame: Mapping[str, float]
    io_ms_per_frame: Mapping[str, float]
    io_predicted_ms: Mapping[str, float]


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
        self.inputs = Timed(frame, self.frames)

    def run(self, cache: Path) -> Compared:
        others = Others()
        result = run(
            self.plan, self.nodes, self.subnets, listed(self.inputs, lambda _, __: None),
            lambda _: None,
            RunOptions(RunConfig(order=self.case.order), cache=cache),
        )  # fmt: skip
        share = others.share()
        host_cpu_s = time.process_time() - self.inputs.began_cpu_s
        frames = self.frames
        predicted, own = (
            self.predicted(plan, result)
            for plan in (with_warmup(self.plan, result), with_own_times(self.plan, result))
        )
        computed = {name: sum(stats.phase_cpu_s) for name, stats in result.stats.items()}
        io_s = {name: stats.cpu_s - computed[name] for name, stats in result.stats.items()}
        return Compared(
            case=str(self.case),
            phases=len(self.plan.phases),
            measured=measured(result),
            predicted=as_figures(predicted),
            from_own_times=as_figures(own),
            computed_ms_per_frame={n: 1e3 * s / frames for n, s in computed.items()},
            io_ms_per_frame={n: 1e3 * s / frames for n, s in (io_s | {HOST: host_cpu_s}).items()},
            io_predicted_ms={n: 1e3 * predicted.io_s[n] for n in (*io_s, HOST)},
            others=share,
            busy_ms_per_frame={n: 1e3 * sum(s.busy_s) / frames for n, s in result.stats.items()},
            warmup_ms={name: 1e3 * sum(own) for name, own in result.warmup_s.items()},
        )

    def predicted(self, plan: Plan, result: RunResult) -> Prediction:
        costs = RunCosts.known(
            plan.devices,
            host=MACHINE,
            cpus={node.name: node.cpus for node in self.nodes} | {HOST: self.host_cpus},
            message_s=result.message_s,
            byte_s=result.byte_s,
        )
        return predict(plan, costs, order=self.case.order, frames=self.frames)


class Timed(OneFrame):
    """Notes how much processor time had gone when the second frame was asked for."""

    began_cpu_s = 0.0

    def __getitem__(self, index: int) -> Mapping[str, np.ndarray]:
        if index == 1:
            self.began_cpu_s = time.process_time()
        return super().__getitem__(index)


def solved(model: Model, case: Case, devices: tuple[Device, ...]) -> Solution:
    if case.strategy != ALTERNATING:
        return find_strategy(case.strategy).solve(Problem(model.network, devices, model=model))
    run_of_layers = NETWORKS[case.network].run_of_layers
    assignment = {
        layer.name: devices[i // run_of_layers % len(devices)].name
        for i, layer in enumerate(model.network.layers)
    }
    return Solution(assignment, "runs of layers in turn")


def measured(result: RunResult) -> Figures:
    held = {name: stats.fifo_peak_bytes for name, stats in result.stats.items()}
    return figures(result.sent_s, result.received_s, held)


def as_figures(found: Prediction) -> Figures:
    return figures(found.sent_s, found.received_s, found.fifo_bytes)


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--case", default="", help="only cases with this in their names")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    cases = [c for c in CASES if c.network in options.networks and options.case in str(c)]
    found: dict[str, list[Compared]] = {}
    began = time.monotonic()
    os.sched_setaffinity(0, CPUS[:1])
    with tempfile.TemporaryDirectory(prefix="prediction-") as place, undisturbed() as means:
        say(options, f"{means}; {load()}")
        models = {name: read(NETWORKS[name].source) for name in options.networks}
        prepared = [Prepared(case, models[case.network], Path(place) / "s") for case in cases]
        for _ in range(options.repetitions):
            for one in prepared:
                compared = one.run(Path(place) / "cache")
                found.setdefault(compared.case, []).append(compared)
                say(options, line(compared))
    say(options, summary(found))
    say(options, f"{time.monotonic() - began:.0f} s; {load()}")
    if options.json:
        print(json.dumps({"runs": [asdict(one) for runs in found.values() for one in runs]}))
    return 0


def say(options: argparse.Namespace, text: str) -> None:
    if not options.json:
        print(text, flush=True)


def off(predicted: float, real: float) -> str:
    return f"{(predicted / real - 1) * 100:+6.1f} %" if real else "   none"


def line(one: Compared) -> str:
    m, p, o = one.measured, one.predicted, one.from_own_times
    held, said = sum(m.fifo_bytes.values()), sum(p.fifo_bytes.values())
    return (
        f"{one.case} ({one.phases} phases): period {1e3 * m.period_s:.2f} ms, predicted "
        f"{1e3 * p.period_s:.2f} ({off(p.period_s, m.period_s)}; own times "
        f"{off(o.period_s, m.period_s)}); latency {1e3 * m.latency_s:.1f} ms, predicted "
        f"{1e3 * p.latency_s:.1f} ({off(p.latency_s, m.latency_s)}; own times "
        f"{off(o.latency_s, m.latency_s)}); FIFOs {held / 1e6:.2f} MB, predicted {said / 1e6:.2f} "
        f"({off(said, held)}; own {off(sum(o.fifo_bytes.values()), held)}); "
        f"warm {short(one.warmup_ms)}, busy {short(one.busy_ms_per_frame)}, "
        f"computed {short(one.computed_ms_per_frame)}, I/O {short(one.io_ms_per_frame)}, predicted "
        f"{short(one.io_predicted_ms)} ms; others used {one.others:.0%} of the CPUs"
    )


def short(values: Mapping[str, float]) -> str:
    return "/".join(f"{value:.2f}" for value in values.values())


def summary(found: Mapping[str, list[Compared]]) -> str:
    lines = ["", "medians: error of period, latency, FIFO bytes; with the run's own times"]
    for case, runs in found.items():
        errors = []
        for kind in ("predicted", "from_own_times"):
            for key in ("period_s", "latency_s"):
                ratios = [
                    getattr(getattr(one, kind), key) / getattr(one.measured, key) for one in runs
                ]
                errors.append(f"{(statistics.median(ratios) - 1) * 100:+6.1f} %")
            ratios = [
                sum(getattr(one, kind).fifo_bytes.values())
                / max(1, sum(one.measured.fifo_bytes.values()))
                for one in runs
            ]
            errors.append(f"{(statistics.median(ratios) - 1) * 100:+6.1f} %")
        lines.append(f"{' '.join(errors[:3])}  | {' '.join(errors[3:])}  {case}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
