"""Tests whether a pipeline of two nodes, each pinned to a CPU, is as fast as its busier node.

    python -m benchmarks.two_nodes [--frames 96] [--repetitions 5] [--json]
                                   [--strategies sequential alternating …]

ResNet50 on two agents of this machine. A run's rate is (frames − skipped − 1) ÷ the time between
the first and the last result that count (the first `skipped` results, while the pipeline fills, do
not). Its bound is 1 ÷ the busy seconds per frame of the busier node in that same run. `overall` is
frames ÷ the time from the first frame's departure to the last result, filling and draining
included: a lower bound that no noise can flatter. The same plan is fired strictly frame by frame
as well, in alternation; the report gives medians.

Two plans: `sequential` cuts the network once, so each node has one phase and both orders are the
same; `alternating` assigns runs of layers in turn, as a search for balance alone does: there are
many phases on both nodes, and firing strictly frame by frame costs most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cnn import Model, Network, read
from ga.strategies import find_strategy
from launcher.config.run import RunConfig
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Node, RunOptions, RunResult, SubnetFiles
from nodes.protocol.messages import Order
from partition.devices import Device
from partition.plan import Plan
from partition.planner import make_plan
from partition.strategies.base import Problem

ORDERS: tuple[Order, ...] = ("pipelined", "strict")
ALTERNATING = "alternating"
RUN_OF_LAYERS = 12
"""How many layers in a row one node gets under `alternating`."""


class OneFrame:
    """`count` times the same random frame, so that making frames costs nothing."""

    def __init__(self, network: Network, count: int) -> None:
        random = np.random.default_rng(0)
        self._frame = {
            name: random.standard_normal(network.tensors[name].shape, dtype=np.float32)
            for name in network.inputs
        }
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Mapping[str, np.ndarray]:
        return self._frame


@dataclass(frozen=True)
class Measured:
    """One run. Rates in frames per second, times in seconds."""

    order: Order
    rate: float
    overall: float
    bound: float
    busy_s_per_frame: dict[str, float]
    cpu_s_per_frame: dict[str, float]
    first_result_s: float

    @property
    def share(self) -> float:
        """The rate as a share of its bound."""
        return self.rate / self.bound


def measure(order: Order, result: RunResult, skipped: int) -> Measured:
    frames = len(result.received_s)
    seconds = result.received_s[-1] - result.received_s[skipped]
    busy = {name: sum(stats.busy_s) / frames for name, stats in result.stats.items()}
    return Measured(
        order=order,
        rate=(frames - skipped - 1) / seconds,
        overall=frames / (result.received_s[-1] - result.sent_s[0]),
        bound=1 / max(busy.values()),
        busy_s_per_frame=busy,
        cpu_s_per_frame={name: stats.cpu_s / frames for name, stats in result.stats.items()},
        first_result_s=result.first_result_s,
    )


def plan_for(network: Network, digest: str, strategy: str) -> Plan:
    devices = (Device("cpu0"), Device("cpu1"))
    if strategy == ALTERNATING:
        assignment: Mapping[str, str] = {
            layer.name: f"cpu{i // RUN_OF_LAYERS % 2}" for i, layer in enumerate(network.layers)
        }
        explanation = f"{RUN_OF_LAYERS} layers each in turn"
    else:
        solution = find_strategy(strategy).solve(Problem(network, devices))
        assignment, explanation = solution.assignment, solution.explanation
    return make_plan(
        network, digest, devices, assignment, strategy=strategy, explanation=explanation
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--frames", type=int, default=96)
    parser.add_argument("--skipped", type=int, default=12)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--strategies", nargs="+", default=["sequential", ALTERNATING])
    parser.add_argument("--cpus", type=int, nargs=2, default=sorted(os.sched_getaffinity(0))[:2])
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()

    model = read(options.model)
    found = []
    for strategy in options.strategies:
        plan = plan_for(model.network, model.digest, strategy)
        with tempfile.TemporaryDirectory(prefix="two-nodes-") as place:
            runs = measure_plan(model, plan, options, Path(place))
        found.append(as_row(plan, runs))
    if options.json:
        print(json.dumps({"plans": found}, indent=1))


def measure_plan(
    model: Model, plan: Plan, options: argparse.Namespace, place: Path
) -> list[Measured]:
    nodes = tuple(Node(f"cpu{i}", cpus=(cpu,)) for i, cpu in enumerate(options.cpus))
    frames = OneFrame(model.network, options.frames)
    subnets = {}
    for phase in plan.phases:
        cut = model.cut(phase.layers, phase.inputs, phase.outputs, place / "subnets")
        subnets[phase.name] = SubnetFiles(cut.graph, cut.weights)
    runs = []
    if not options.json:
        print(f"{plan.network}, {plan.strategy}: {len(plan.phases)} phases on two nodes")
    for order in ORDERS * options.repetitions:
        result = run(
            plan, nodes, subnets, listed(frames, lambda _, __: None), lambda _: None,
            RunOptions(RunConfig(order=order), cache=place / "cache"),
        )  # fmt: skip
        runs.append(measure(order, result, options.skipped))
        if not options.json:
            print(line(runs[-1]), flush=True)
    if not options.json:
        for order in ORDERS:
            own = [one for one in runs if one.order == order]
            print(
                f"  median {order:<9}  {median(one.rate for one in own):6.2f} frames/s, "
                f"{median(one.share for one in own):.3f} of the bound"
            )
    return runs


def as_row(plan: Plan, runs: list[Measured]) -> dict[str, object]:
    return {
        "network": plan.network,
        "strategy": plan.strategy,
        "phases": len(plan.phases),
        "runs": [{**asdict(one), "share": one.share} for one in runs],
        **{
            f"{order}_{name}": median(getattr(one, name) for one in runs if one.order == order)
            for order in ORDERS
            for name in ("rate", "share")
        },
    }


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def line(one: Measured) -> str:
    busy = ", ".join(f"{name} {1000 * s:.1f} ms" for name, s in one.busy_s_per_frame.items())
    return (
        f"  {one.order:<9}  {one.rate:6.2f} frames/s of {one.bound:6.2f} ({one.share:.3f}; "
        f"overall {one.overall / one.bound:.3f}); "
        f"busy per frame: {busy}; first result after {one.first_result_s:.1f} s"
    )


if __name__ == "__main__":
    main()
