"""Measures in the laboratory how a pipeline's rate scales with the number of boards:

    python -m benchmarks.lab_scaling [--devices 2 4] [--repetitions 3] [--seconds 15] [--json]
                                    [--strategy auto] [--profiled]

For each n, n emulated boards are made. In alternation, `--repetitions` times:

- **replicas**: every board computes the whole model in its slice, all n at the same time; their
  summed rate is what n boards can do without a network;
- **pipeline**: `launch`'s own plan and run over the same boards' agents. Its rate is taken between
  results, from when the pipeline is full until its last frame departs.

**Scaling efficiency** is a pipeline's rate ÷ the mean of the summed rates of the replicas before
and after it; the report gives the median and the spread. It also says where the rest went: what the
slices computed per frame against the replicas, how busy the busiest slice was, and what the agents'
other threads computed. Results of the pipeline are compared with the whole model's.

The quota holds for the computing alone on accelerator boards, and for all of an agent on CPU boards
(`--board cpu`). It needs root; see docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.counted import Round
from benchmarks.lab.profiling import profile
from benchmarks.lab.turns import pipeline_turn, whole_on_every_board
from benchmarks.report import Figure, print_json, report
from benchmarks.table3.paper import LEAST_EFFICIENCY
from benchmarks.undisturbed import undisturbed
from launcher.config.load import load_cluster
from launcher.config.units import parse_link
from launcher.errors import LauncherError
from launcher.plan.planner import Planner
from launcher.plan.settings import read_model
from launcher.plan.subnet_files import cut_subnets
from launcher.profile.use import profile_file, with_profile_option
from launcher.progress import open_progress


@dataclass(frozen=True)
class Scaling:
    """What was found for one n. Efficiencies in 0..1 (or above), one for each pipeline."""

    devices: int
    strategy: str
    explanation: str
    phases: int
    bytes_per_frame: int
    planned_rate: float
    replicas: tuple[Round, ...]
    pipelines: tuple[Round, ...]
    efficiencies: tuple[float, ...]
    difference: float
    memory_peak_bytes: Mapping[str, int]
    memory_idle_bytes: Mapping[str, int]
    others: float

    @property
    def efficiency(self) -> float:
        """The median."""
        return statistics.median(self.efficiencies)

    @property
    def work(self) -> float:
        """What all slices computed for a frame ÷ what a replica computes for one."""
        whole = statistics.median(statistics.mean(r.slice_s.values()) for r in self.replicas)
        return statistics.median(sum(p.slice_s.values()) for p in self.pipelines) / whole

    @property
    def busiest(self) -> float:
        """The part of its quota that the busiest slice used."""
        return statistics.median(max(p.slice_use.values()) for p in self.pipelines)

    @property
    def other_ms(self) -> float:
        """Milliseconds of CPU per frame of all agents' other threads together."""
        return 1000 * statistics.median(sum(p.other_s.values()) for p in self.pipelines)


def measure(count: int, options: argparse.Namespace) -> Scaling:
    """Make `count` boards, and let replicas and pipelines take turns on them."""
    config = LabConfig(
        name=f"scale{count}",
        undisturbed=True,
        defaults=BoardConfig(board=options.board, cpu=options.cpu, link=options.link),
        devices=(DeviceConfig(count=count),),
        cluster={"model": options.model, "strategy": options.strategy},
    )
    with (
        tempfile.TemporaryDirectory(prefix="lab-scaling-") as place,
        Lab(config) as lab,
        open_progress() as progress,
    ):
        folder = Path(place)
        cluster = load_cluster(lab.cluster_file)
        if options.profiled:
            cluster = with_profile_option(cluster, profile(lab, folder / "profile.json"))
        model = read_model(cluster)
        plan = Planner(cluster, model, profile_file(cluster, model)).plan(progress)
        subnets = cut_subnets(model, plan, folder / "subnets", lambda _, __: None)
        with whole_on_every_board(lab, model, folder) as whole:
            turns = [whole.turn(options.seconds)]
            pipelines, result, difference = [], None, 0.0
            for _ in range(options.repetitions):
                frames = round(turns[0].rate * options.seconds)
                one, result, off = pipeline_turn(lab, cluster, plan, subnets, whole, frames)
                difference = max(difference, off)
                pipelines.append(one)
                turns.append(whole.turn(options.seconds))
                progress.say(_line(one, turns[-2:]))
    assert result is not None
    return Scaling(
        devices=count,
        strategy=plan.strategy,
        explanation=plan.explanation,
        phases=len(plan.phases),
        bytes_per_frame=plan.bytes_per_frame,
        planned_rate=1 / plan.period_s,
        replicas=tuple(turns),
        pipelines=tuple(pipelines),
        efficiencies=tuple(
            one.rate / statistics.mean((turns[i].rate, turns[i + 1].rate))
            for i, one in enumerate(pipelines)
        ),
        difference=difference,
        memory_peak_bytes={name: stats.rss_peak_bytes for name, stats in result.stats.items()},
        memory_idle_bytes=dict(result.idle_rss_bytes),
        others=statistics.median(one.others for one in (*turns, *pipelines)),
    )


def _line(one: Round, beside: list[Round]) -> str:
    sums = ", ".join(f"{turn.rate:.2f}" for turn in beside)
    share = one.rate / statistics.mean(turn.rate for turn in beside)
    return f"pipeline {one.rate:.2f} frames/s; replicas before and after {sums}: {share:.3f}"


def summary_of(found: Scaling) -> str:
    low, high = min(found.efficiencies), max(found.efficiencies)
    summed = statistics.median(turn.rate for turn in found.replicas)
    rate = statistics.median(one.rate for one in found.pipelines)
    return (
        f"{found.devices:>3} boards  efficiency {found.efficiency:.3f} ({low:.3f} to {high:.3f})  "
        f"{rate:.2f} of {summed:.2f} frames/s  {found.phases} phases, "
        f"{found.bytes_per_frame / 1e6:.1f} MB per frame  work × {found.work:.3f}  "
        f"busiest slice {found.busiest:.0%}  beside it {found.other_ms:.1f} ms per frame  "
        f"difference {found.difference:.1e}"
    )


def figures(found: Sequence[Scaling], asked: Mapping[int, float]) -> list[Figure]:
    """Told as `benchmarks.report` does; `asked` maps numbers of boards to the least efficiency."""
    rows = []
    for one in found:
        boards = f"{one.devices} boards"
        rates = [pipeline.rate for pipeline in one.pipelines]
        rows += [
            Figure(
                f"{boards}: efficiency", round(one.efficiency, 4),
                at_least=asked.get(one.devices), low=round(min(one.efficiencies), 4),
                high=round(max(one.efficiencies), 4), note=one.strategy,
            ),
            Figure(
                f"{boards}: rate", round(statistics.median(rates), 3), "frames/s",
                low=round(min(rates), 3), high=round(max(rates), 3),
            ),
            Figure(f"{boards}: computed per frame, of what a replica computes", one.work, "×"),
            Figure(f"{boards}: busiest slice", round(100 * one.busiest, 1), "%"),
        ]  # fmt: skip
    return rows


def as_report(found: Sequence[Scaling], options: argparse.Namespace, how: str) -> dict[str, Any]:
    """As `benchmarks.report` wants it."""
    is_asked = options.model == "onnx-wheel:resnet50" and options.strategy == "auto"
    asked = LEAST_EFFICIENCY[options.board] if is_asked else {}
    keys = ("efficiency", "work", "busiest", "other_ms")
    settings = {key: value for key, value in vars(options).items() if key != "json"}
    return report(
        "lab_scaling",
        f"Scaling efficiency: {options.model}, {options.strategy}, {options.board} boards of "
        f"{options.cpu:g} core",
        figures(found, asked),
        settings={**settings, "priority": how},
        notes=[
            "Efficiency: the pipeline's rate ÷ the mean of what as many replicas of the whole "
            "model, all at once in the same slices, do before and after it."
        ],
        data={
            "scaling": [
                {**asdict(one), **{key: getattr(one, key) for key in keys}} for one in found
            ]
        },
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--board", choices=("accelerator", "cpu"), default="accelerator")
    parser.add_argument("--cpu", type=float, default=0.2, help="cores per board")
    parser.add_argument("--link", type=parse_link, default="1Gbit/s")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each turn")
    parser.add_argument(
        "--profiled", action="store_true", help="measure the boards before searching for a plan"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    try:
        machine.require()
        with undisturbed() as how:
            found = [measure(count, options) for count in options.devices]
    except LauncherError as error:
        print(f"lab_scaling: {error}", file=sys.stderr)
        return error.exit_code
    if options.json:
        print_json(as_report(found, options, how))
    else:
        print("\n".join(map(summary_of, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
