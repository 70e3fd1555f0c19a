"""Predicts both columns of Table 3 for plans of several strategies: `python -m benchmarks.both`.

    python -m benchmarks.both [NETWORK …] [--devices 4,10] [--strategies vertical,runs] [--json]

Devices are equal accelerator boards of 2 GMAC/s, whose wire costs their processors nothing.
Channels hold `--slack` frames to spare. Each row is one plan for the objective `both`: the speed-up
over one board relative to n, the memory of the fullest board beside an idle agent with what it
saves against one board, that of its tensors alone, phases, bytes sent per frame, and the processor
time of the search. All figures are predictions.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import cnn
from benchmarks.table3.paper import NETWORKS
from ga.both import tensor_bytes
from ga.strategies import find_strategy
from partition.alone import beside_idle_bytes
from partition.devices import Device
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution


@dataclass(frozen=True, slots=True)
class Row:
    """The predictions of one plan; savings are against the same network on one board."""

    network: str
    devices: int
    strategy: str
    efficiency: float
    held_bytes: int
    saving_percent: float
    tensor_bytes: int
    tensor_saving_percent: float
    phases: int
    bytes_per_frame: int
    seconds: float


def boards(count: int) -> tuple[Device, ...]:
    """Return equal accelerator boards."""
    return tuple(Device(f"d{i}", macs_per_s=2e9, wire_is_free=True) for i in range(count))


def rows(path: str, counts: Sequence[int], strategies: Sequence[str], slack: int) -> list[Row]:
    """Return a row for each number of boards and strategy."""
    model = cnn.read(path)
    one = Problem(model.network, boards(1), slack_frames=slack, model=model)
    everything = Solution({layer.name: "d0" for layer in model.network.layers}, "")
    alone = plan_solution(one, everything, "")
    found = []
    for count in counts:
        for strategy in strategies:
            problem = Problem(model.network, boards(count), slack_frames=slack, model=model)
            start_s = time.process_time()
            solution = find_strategy(strategy).solve(problem)
            seconds = time.process_time() - start_s
            plan = plan_solution(problem, solution, strategy)
            found.append(_row(plan, alone, strategy, seconds))
    return found


def _row(plan: Plan, alone: Plan, strategy: str, seconds: float) -> Row:
    held, whole = beside_idle_bytes(plan), beside_idle_bytes(alone)
    tensors, all_tensors = (max(map(tensor_bytes, p.memory.values())) for p in (plan, alone))
    return Row(
        plan.network,
        len(plan.devices),
        strategy,
        alone.period_s / plan.period_s / len(plan.devices),
        held,
        100 * (1 - held / whole),
        tensors,
        100 * (1 - tensors / all_tensors),
        len(plan.phases),
        plan.bytes_per_frame,
        seconds,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.both", description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=[NETWORKS["resnet50"]], metavar="NETWORK")
    parser.add_argument("--devices", default="4,10", help="numbers of devices")
    parser.add_argument("--strategies", default="vertical,runs,auto", help="their names")
    parser.add_argument("--slack", type=int, default=0, help="frames that channels hold to spare")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    chosen = parser.parse_args(arguments)
    counts = [int(count) for count in chosen.devices.split(",")]
    strategies = chosen.strategies.split(",")
    every = []
    if not chosen.json:
        print(f"{'network':12} n  strategy    speed-up  beside idle  tensors  phases  MB/frame  s")
    for path in chosen.networks:
        for row in rows(path, counts, strategies, chosen.slack):
            every.append(row)
            if not chosen.json:
                print(_line(row), flush=True)
    if chosen.json:
        print(json.dumps({"rows": [asdict(row) for row in every]}))
    return 0


def _line(row: Row) -> str:
    return (
        f"{row.network[:12]:12} {row.devices:<2} {row.strategy:11} {row.efficiency:.3f} n "
        f"{row.held_bytes / 1e6:6.1f} MB −{row.saving_percent:.1f} % "
        f"{row.tensor_bytes / 1e6:6.1f} MB −{row.tensor_saving_percent:.1f} % "
        f"{row.phases:4} {row.bytes_per_frame / 1e6:6.1f} {row.seconds:6.1f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
