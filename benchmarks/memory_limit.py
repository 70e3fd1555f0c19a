"""Runs a network on boards that can hold about a third of it, and are killed if they hold more:

    python -m benchmarks.memory_limit [--model resnet50.onnx] [--devices 4] [--repetitions 3]
                                      [--json]

Emulated boards (`benchmarks.lab`) get a memory limit of an agent with its engine and a third (1 /
`--share`) of what the whole network's weights, activations and channels take on one board, enforced
by their control groups from the agent's first byte on: loading and optimising included. Then

- the whole network on one board must be refused by the planner, before anything is sent;
- ONNX Runtime, loading it on one board as it is, must be killed there;
- the pipeline over all boards must run, and compute what the whole network computes.

For each board the report gives the most memory that no file backed, which the kernel cannot
reclaim, read from its control group throughout. It needs root.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.comparison import TOLERANCE, worst_of
from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.readings import anonymous_bytes
from benchmarks.lab.replica import Reference, reference
from benchmarks.lab.runs import planned
from benchmarks.report import Figure, arguments, report, show
from cnn.model import Model
from launcher.config.load import load_cluster
from launcher.errors import LauncherError
from launcher.plan.settings import read_model
from launcher.progress import ProgressDisplay, open_progress
from launcher.threads import Repeated
from nodes.protocol.payload import Array
from partition.devices import Device
from partition.errors import DoesNotFitError
from partition.plan import MemoryPrediction
from partition.planner import make_plan
from partition.pricing.memory_budget import engine_bytes

WATCH_S = 0.01
"""How often control groups are read."""

FRAMES, CORES = 12, 0.4
FORCED = "import sys, onnxruntime as o; o.InferenceSession(sys.argv[1]); print('loaded')"
"""What the first thing that comes to mind does: all weights in its own memory."""


def on_one_board(model: Model, memory_bytes: int | None = None) -> MemoryPrediction:
    """What the whole network takes on one board; raises `DoesNotFitError` beyond its memory."""
    device = Device("board", memory_bytes=memory_bytes)
    layers = dict.fromkeys(model.network.layer, device.name)
    plan = make_plan(
        model.network, model.digest, [device], layers, strategy="manual", explanation="whole"
    )
    return plan.memory[device.name]


def refusal(model: Model, limit_bytes: int) -> str:
    """What the planner says to the whole network on one such board; empty if it accepts that."""
    try:
        on_one_board(model, limit_bytes)
    except DoesNotFitError as error:
        return str(error)
    return ""


def forced(lab: Lab, graph: Path) -> int:
    """The exit code of ONNX Runtime that loads the whole network on the first board."""
    board = next(iter(lab.layout.places))
    with lab.popen(board, (sys.executable, "-c", FORCED, str(graph))) as process:
        return process.wait(timeout=120)


@dataclass(frozen=True)
class Round:
    """One deployment on new boards: by board the most that it held and no file backs and its
    agent's peak ÷ prediction, and what became of the rest."""

    held_bytes: Mapping[str, int]
    of_prediction: Mapping[str, float]
    oom_kills: int
    forced_exit_code: int
    difference: float


def attempt(
    config: LabConfig, model: Model, whole: Reference, folder: Path, progress: ProgressDisplay
) -> Round:
    """The pipeline over all boards, then ONNX Runtime with the whole on one of them."""
    (frame,), (wanted,) = whole.frames, whole.results
    differences: list[float] = []

    def take(_: int, outputs: Mapping[str, Array]) -> None:
        differences.append(worst_of((outputs[name], array) for name, array in wanted.items()))

    with Lab(config) as lab:
        groups = {n: lab.layout.group_of(place) for n, place in lab.layout.places.items()}
        held = dict.fromkeys(groups, 0)

        def look() -> None:
            for name, group in groups.items():
                held[name] = max(held[name], anonymous_bytes(group))

        with Repeated(look, lambda: WATCH_S, "watching memory"):
            made = planned(load_cluster(lab.cluster_file), model, folder, progress)
            result = made.stream([frame] * FRAMES, take)
        used = (device.used for device in lab.status(over_s=0.0).devices)
        return Round(
            held_bytes=held,
            of_prediction={
                name: stats.rss_peak_bytes / made.plan.memory[name].total_bytes
                for name, stats in result.stats.items()
            },
            oom_kills=sum(one.oom_kills for one in used),
            forced_exit_code=forced(lab, whole.graph),
            difference=max(differences),
        )


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    with (
        tempfile.TemporaryDirectory(prefix="memory-limit-") as place,
        open_progress() as progress,
    ):
        folder = Path(place)
        (folder / "cluster.yaml").write_text(f"model: {options.model}\nnodes: [{{name: alone}}]\n")
        model = read_model(load_cluster(folder / "cluster.yaml"))
        needed = on_one_board(model).total_bytes
        limit = engine_bytes(1) + int((needed - engine_bytes(1)) / options.share)
        progress.say(f"the whole takes {needed / 1e6:.0f} MB; boards get {limit / 1e6:.0f} MB")
        whole = reference(model, folder)
        config = LabConfig(
            name="memlim",
            defaults=BoardConfig(memory=limit, cpu=CORES, link=125e6),
            devices=(DeviceConfig(count=options.devices),),
            cluster={"model": options.model, "strategy": "sequential"},
        )
        rounds = [
            attempt(config, model, whole, folder, progress) for _ in range(options.repetitions)
        ]
    return {
        "limit_bytes": limit,
        "whole_bytes": needed,
        "refusal": refusal(model, limit),
        "rounds": [asdict(one) for one in rounds],
    }


def figures(found: Mapping[str, Any]) -> list[Figure]:
    """The figures of all rounds."""
    rounds, limit = found["rounds"], found["limit_bytes"]
    held = [size / limit for one in rounds for size in one["held_bytes"].values()]
    peaks = [ratio for one in rounds for ratio in one["of_prediction"].values()]
    killed = sum(one["forced_exit_code"] == -9 for one in rounds)
    planner = "refuses" if found["refusal"] else "accepts"
    return [
        Figure("a board's memory limit", limit / 1e6, "MB"),
        Figure("what the whole network takes on one board", found["whole_bytes"] / 1e6, "MB"),
        Figure("the planner, asked for the whole on one board", planner),
        Figure("ONNX Runtime, made to load the whole on one board: killed", killed,
               f"of {len(rounds)} times", at_least=len(rounds)),
        Figure("agents or children killed", sum(one["oom_kills"] for one in rounds), at_most=0),
        _worst("most that a board held and no file backs ÷ its limit", held, 1.0),
        _worst("agent's peak ÷ its plan's prediction", peaks, 1.1),
        Figure("difference from the whole network", max(one["difference"] for one in rounds),
               at_most=TOLERANCE),
    ]  # fmt: skip


def _worst(what: str, readings: Sequence[float], at_most: float) -> Figure:
    """The board that is worst in any run; the spread is over all boards and runs."""
    most = max(readings)
    return Figure(what, most, at_most=at_most, low=min(readings), high=most)


def main() -> int:
    parser = arguments("benchmarks.memory_limit", __doc__)
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--share", type=float, default=3.0, help="of the whole, a board's inverse")
    parser.add_argument("--repetitions", type=int, default=3, help="each on new boards")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    try:
        machine.require()
        found = measure(options)
    except LauncherError as error:
        print(f"memory_limit: {error}", file=sys.stderr)
        return error.exit_code
    data = report(
        "memory_limit",
        "A network of which no board can hold more than about a third",
        figures(found),
        settings={key: value for key, value in vars(options).items() if key != "json"},
        notes=[
            "Of boards, the worst of all runs; its spread is over all boards and runs.",
            *([f"The planner: {found['refusal']}"] if found["refusal"] else []),
        ],
        data=found,
    )
    return show(data, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
