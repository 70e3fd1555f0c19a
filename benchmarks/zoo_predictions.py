"""Compares memory and period of the zoo's networks with their predictions.

    python -m benchmarks.zoo_predictions [NAME …] [--ways sequential …] [--json FILE]

Each network is launched as a user would, over three nodes of this machine and without a comparison
of results, once in each *way*: by a strategy, or whole on `one` node. Compared are

- the **memory** of the agent of every node that computes. Predicted: what the plan says before
  anything runs (`partition.prediction.memory`), without the process that prepares subnets, which
  has ended by then. Measured: the most that was ever resident in the agent's process without the
  pages of programs and libraries (`nodes.host.usage`), which is reached while subnets are loaded,
  rehearsed or run; and the 8 MB of code that the prediction counts.
- the **period**, in seconds per frame from the first result to the last. Predicted: the run as
  simulated from what the agents measured while they warmed up; *planned*: as predicted before
  anything ran. The report also has the ratio for a simulation with the seconds that each phase took
  in the run itself: its remaining error is the model's and not the rehearsal's.

All ratios are measured ÷ predicted. With `--json` every run is written to FILE as soon as it ends,
and those that FILE has already are not repeated. Networks that are not exported, or that cannot be
run, are named and omitted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.prediction import with_own_times
from benchmarks.report import Figure, Table, report
from benchmarks.undisturbed import Others, load, undisturbed
from benchmarks.zoo.cache import file_of
from benchmarks.zoo.registry import Entry, chosen
from launcher.files import write_whole
from launcher.plan.machines import THIS_MACHINE
from launcher.plan.prediction import predicted_run, times_of
from launcher.progress import LineProgress
from launcher.results.report import Report
from launcher.run import job
from launcher.run.request import Request
from launcher.run.runtime import Node, Runner, RunResult
from partition.plan import MemoryPrediction, Plan
from partition.pricing.memory_budget import CODE_BYTES, PREPARING_BYTES, START_UP_BYTES

NODES = 3
ONE = "one"
"""The way in which a single node computes the whole network."""

WAYS = (ONE, "sequential", "vertical", "auto")
FRAMES = 48
LONGEST_S = 600

MEMORY = (0.9, 1.1)
PERIOD = (0.9, 1.15)
ASKED = 90.0
"""Between these bounds measured ÷ predicted is asked to be, in so many per cent of launches."""


@dataclass(frozen=True)
class NodeMemory:
    """Bytes of a node: what the plan says, term by term, and the peak of its process."""

    phases: int
    weights: int
    activations: int
    channels: int
    engine: int
    predicted: int
    measured: int

    @property
    def ratio(self) -> float:
        """Measured ÷ predicted."""
        return self.measured / self.predicted


def agent_bytes(memory: MemoryPrediction) -> int:
    """The predicted memory of an agent alone: what it holds, or needs while it packs weights."""
    tensors = memory.weights_bytes + memory.activations_bytes + memory.channels_bytes
    loading = START_UP_BYTES - PREPARING_BYTES + CODE_BYTES + memory.packing_bytes
    return max(tensors + memory.engine_bytes, loading)


@dataclass(frozen=True)
class Ran:
    """One network in one way; periods in seconds, `others` is their share of the CPUs."""

    network: str
    way: str
    nodes: tuple[NodeMemory, ...] = ()
    phases: int = 0
    planned_s: float = 0.0
    predicted_s: float = 0.0
    from_own_times_s: float = 0.0
    measured_s: float = 0.0
    others: float = 0.0
    failed: str = ""

    @property
    def memory_ratio(self) -> float:
        """That of the node which is furthest off."""
        return max((node.ratio for node in self.nodes), key=lambda r: max(r, 1 / r))

    @property
    def period_ratio(self) -> float:
        """Measured ÷ predicted."""
        return self.measured_s / self.predicted_s

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Ran:
        """What `asdict` has made of one."""
        return cls(**{**data, "nodes": tuple(NodeMemory(**node) for node in data["nodes"])})


# ------------------------------------------------------------------------------ in the child


def launched(entry: Entry, way: str, frames: int) -> tuple[Plan, RunResult, Report]:
    """Launch the network; raises `LauncherError` if that fails."""
    results: list[RunResult] = []

    @contextmanager
    def noting(nodes: tuple[Node, ...]) -> Iterator[Runner]:
        with job.real_runtime(nodes) as runner:

            class Noted:
                call_roll = runner.call_roll

                def __call__(self, *args: Any, **more: Any) -> RunResult:
                    results.append(runner(*args, **more))
                    return results[-1]

            yield Noted()

    shapes = entry.input_shapes
    model: dict[str, Any] = {"path": str(file_of(entry.name))}
    if shapes is not None:
        model["input_shape"] = (
            list(shapes) if isinstance(shapes, tuple) else {k: list(v) for k, v in shapes.items()}
        )
    count = 1 if way == ONE else NODES
    cluster = {
        "model": model,
        "nodes": [{"name": f"n{number}"} for number in range(count)],
        "input": "random",
        "frames": frames,
        "strategy": "sequential" if way == ONE else way,
        "verify": False,
    }
    with tempfile.TemporaryDirectory() as folder, LineProgress(sys.stderr) as progress:
        file = Path(folder) / "cluster.yaml"
        file.write_text(json.dumps(cluster), "utf-8")
        outcome = job.launch(Request(file), progress, started_s=time.monotonic(), runtime=noting)
    assert outcome.plan is not None and outcome.report is not None  # noqa: PT018 - it has run
    return outcome.plan, results[-1], outcome.report


def compared(entry: Entry, way: str, frames: int) -> Ran:
    """Launch the network and put what was predicted beside what was measured."""
    others = Others()
    plan, result, found = launched(entry, way, frames)
    share = others.share()
    own = predicted_run(with_own_times(plan, result), result, "pipelined", THIS_MACHINE)
    return Ran(
        network=entry.name,
        way=way,
        nodes=tuple(
            NodeMemory(
                phases=node.phases,
                weights=plan.memory[node.name].weights_bytes,
                activations=plan.memory[node.name].activations_bytes,
                channels=plan.memory[node.name].channels_bytes,
                engine=plan.memory[node.name].engine_bytes,
                predicted=agent_bytes(plan.memory[node.name]),
                measured=node.memory_measured_bytes + CODE_BYTES,
            )
            for node in found.nodes
            if node.phases
        ),
        phases=len(plan.phases),
        planned_s=found.period_planned_s,
        predicted_s=found.period_predicted_s,
        from_own_times_s=times_of(own.sent_s, own.received_s).period_s,
        measured_s=found.period_measured_s,
        others=share,
    )


# ------------------------------------------------------------------------------ in the parent


def in_own_process(entry: Entry, way: str, frames: int) -> Ran:
    """`compared`, or what kept it from ending well."""
    command = [sys.executable, "-m", "benchmarks.zoo_predictions", entry.name]
    command += ["--one", way, "--frames", str(frames)]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Ran(entry.name, way, failed=f"not done after {LONGEST_S} s")
    if ended.returncode:
        said = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        return Ran(entry.name, way, failed=said[-1])
    return Ran.from_json(json.loads(ended.stdout.splitlines()[-1]))


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def within(ratios: Sequence[float], bounds: tuple[float, float]) -> float:
    """The share of ratios within bounds."""
    return sum(bounds[0] <= ratio <= bounds[1] for ratio in ratios) / len(ratios)


def figures(runs: Sequence[Ran]) -> list[Figure]:
    """The ratios' medians and quantiles, over all ways and for each."""
    if not runs:
        return []
    found = []
    for way in ("all", *dict.fromkeys(run.way for run in runs)):
        of_way = [run for run in runs if way in ("all", run.way)]
        for what, ratios, bounds in (
            ("memory of the node furthest off", [run.memory_ratio for run in of_way], MEMORY),
            ("period", [run.period_ratio for run in of_way], PERIOD),
        ):
            low, high = quantile(ratios, 0.05), quantile(ratios, 0.95)
            share = 100 * within(ratios, bounds)
            asked = ASKED if way == "all" else None
            found += [
                Figure(
                    f"{way}: {what}, measured ÷ predicted (spread: 5 to 95 %)",
                    statistics.median(ratios), "×", low=low, high=high,
                ),
                Figure(f"{way}: of these within {bounds[0]} to {bounds[1]}", share, "%", asked),
            ]  # fmt: skip
    return found


def worst(runs: Sequence[Ran], ratio_of: Callable[[Ran], float], title: str) -> Table:
    """The runs that are furthest from what was predicted."""
    far = sorted(runs, key=lambda run: -max(ratio_of(run), 1 / ratio_of(run)))[:10]
    return Table(
        title,
        ("network", "way", "phases", "measured ÷ predicted"),
        tuple((run.network, run.way, str(run.phases), f"{ratio_of(run):.2f}") for run in far),
    )


def result(runs: Sequence[Ran], options: argparse.Namespace, priority: str) -> dict[str, Any]:
    """What `--json` writes."""
    good = [run for run in runs if not run.failed]
    networks = {run.network for run in good}
    shares = [run.others for run in good]
    return report(
        "zoo_predictions",
        "Predictions of memory and period, over the zoo",
        figures(good),
        settings={
            "frames": options.frames,
            "nodes": NODES,
            "ways": list(options.ways),
            "priority": priority,
        },
        notes=[
            f"{len(networks)} networks in {len(good)} launches, {len(runs) - len(good)} failed or "
            "were refused. Memory: the peak of an agent's resident memory, its mapped files "
            "included. Period: from the first result to the last, against a simulation with what "
            "the agents measured while they warmed up. Others used "
            f"{statistics.median(shares) if shares else 0:.0%} of the CPUs in the median run.",
        ],
        tables=[
            worst(good, lambda run: run.memory_ratio, "Memory: the furthest"),
            worst(good, lambda run: run.period_ratio, "Period: the furthest"),
        ],
        data={"runs": [asdict(run) for run in runs]},
    )


def earlier(file: Path | None) -> list[Ran]:
    """The runs that the file has, if it is there, without those that failed."""
    if file is None or not file.exists():
        return []
    found = json.loads(file.read_text("utf-8"))["data"]["runs"]
    return [Ran.from_json(run) for run in found if not run["failed"]]


def line(run: Ran) -> str:
    """One run in one line."""
    if run.failed:
        return f"{run.network:32} {run.way:10} {run.failed}"
    ratios = " ".join(f"{node.ratio:.2f}" for node in run.nodes)
    return (
        f"{run.network:32} {run.way:10} {run.phases:3} phases  memory {ratios:16} period "
        f"{run.period_ratio:.2f} (own times {run.measured_s / run.from_own_times_s:.2f}, planned "
        f"{run.measured_s / run.planned_s:.2f}) of {1e3 * run.predicted_s:.1f} ms; others used "
        f"{run.others:.0%}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help=f"strategies, or {ONE!r}")
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--largest", type=float, metavar="MB", help="leave out larger files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the runs here; resume")
    parser.add_argument("--one", metavar="WAY", help=argparse.SUPPRESS)
    options = parser.parse_args()
    entries = chosen(options.names)
    if options.one:
        print(json.dumps(asdict(compared(entries[0], options.one, options.frames))))
        return 0
    runs = earlier(options.json)
    known = {(run.network, run.way) for run in runs}
    limit = float("inf") if options.largest is None else options.largest * 1e6
    there = [e for e in entries if file_of(e.name).exists() and not e.refused]
    there = [e for e in there if file_of(e.name).stat().st_size <= limit]
    print(f"{len(there)} of {len(entries)} networks are there; {load()}", flush=True)
    with undisturbed() as priority:
        for entry, way in itertools.product(there, options.ways):
            if (entry.name, way) in known:
                continue
            runs.append(in_own_process(entry, way, options.frames))
            print(line(runs[-1]), flush=True)
            if options.json is not None:
                found = result(runs, options, priority)
                write_whole(options.json, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    for figure in figures([run for run in runs if not run.failed]):
        span = "" if figure.low is None else f" ({figure.low:.2f} to {figure.high:.2f})"
        print(f"{figure.what}: {figure.measured:.2f} {figure.unit}{span}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
