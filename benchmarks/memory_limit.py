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
reclaim, read from its control group throughout. `max_usage` includes the page cache, which grows to
any limit; `failcnt` is how often the page cache had to be dropped to stay below it. It needs root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.turns import Compared, OneFrame, planned, reference
from benchmarks.report import Figure, arguments, report, show
from cnn.model import Model
from launcher.config.load import load_cluster
from launcher.errors import LauncherError
from launcher.plan.devices import nodes_of
from launcher.plan.settings import read_model, run_options
from launcher.progress import ProgressDisplay, open_progress
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import RunResult
from partition.devices import Device
from partition.errors import DoesNotFitError
from partition.plan import MemoryPrediction, Plan
from partition.planner import make_plan
from partition.pricing.memory_budget import engine_bytes

WATCH_S = 0.01
"""How often control groups are read."""

TOLERANCE = 1e-4
FORCED = "import sys, onnxruntime as o; o.InferenceSession(sys.argv[1]); print('loaded')"
"""What the first thing that comes to mind does: all weights in its own memory."""


class Watch:
    """The most that each board held, read all the while."""

    def __init__(self, lab: Lab) -> None:
        self._folders = {
            name: lab.layout.group_of(place).folder("memory")
            for name, place in lab.layout.places.items()
        }
        self.peak_bytes = dict.fromkeys(self._folders, 0)
        self._over = threading.Event()

    def _look(self) -> None:
        while not self._over.wait(WATCH_S):
            for name, folder in self._folders.items():
                stat = dict(
                    line.split() for line in (folder / "memory.stat").read_text().splitlines()
                )
                held = int(stat.get("total_rss") or stat["anon"])
                self.peak_bytes[name] = max(self.peak_bytes[name], held)

    def failures(self) -> dict[str, int]:
        """How often the limit was reached (version 1)."""
        files = {name: folder / "memory.failcnt" for name, folder in self._folders.items()}
        return {name: int(file.read_text()) for name, file in files.items() if file.exists()}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """While the block lasts."""
        thread = threading.Thread(target=self._look)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()


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
    """One deployment on new boards: board → what was read there, and what became of the rest."""

    boards: Mapping[str, Mapping[str, int | None]]
    oom_kills: int
    lightly_optimised: int
    forced_exit_code: int


def attempt(
    config: LabConfig,
    model: Model,
    graph: Path,
    frames: OneFrame,
    compared: Compared,
    folder: Path,
    progress: ProgressDisplay,
) -> Round:
    """The pipeline over all boards, then ONNX Runtime with the whole on one of them."""
    with Lab(config) as lab:
        watch = Watch(lab)
        with watch.watching():
            cluster = load_cluster(lab.cluster_file)
            plan, subnets = planned(cluster, model, folder, progress)
            result = run(
                plan, nodes_of(cluster), subnets, listed(frames, compared), lambda _: None,
                run_options(cluster),
            )  # fmt: skip
        status = {device.name: device for device in lab.status(over_s=0.0).devices}
        failures = watch.failures()
        return Round(
            boards={name: _board(name, plan, result, watch, failures.get(name)) for name in status},
            oom_kills=sum(one.used.oom_kills for one in status.values() if one.used is not None),
            lightly_optimised=sum(
                place.log.read_text("utf-8").count("optimised with less memory")
                for place in lab.layout.places.values()
            ),
            forced_exit_code=forced(lab, graph),
        )


def _board(
    name: str, plan: Plan, result: RunResult, watch: Watch, failures: int | None
) -> dict[str, int | None]:
    stats = result.stats.get(name)
    return {
        "held_peak_bytes": watch.peak_bytes[name],
        "failcnt": failures,
        "agent_peak_bytes": stats.rss_peak_bytes if stats else None,
        "predicted_bytes": plan.memory[name].total_bytes,
    }


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
        said = refusal(model, limit)
        progress.say(f"the whole takes {needed / 1e6:.0f} MB; boards get {limit / 1e6:.0f} MB")
        whole = reference(model, folder)
        compared = Compared(whole.outputs)
        config = LabConfig(
            name="memlim",
            defaults=BoardConfig(memory=limit, cpu=options.cpu, link=125e6),
            devices=(DeviceConfig(count=options.devices),),
            cluster={"model": options.model, "strategy": options.strategy},
        )
        frames = OneFrame(whole.inputs, options.frames)
        rounds = [
            attempt(config, model, whole.graph, frames, compared, folder, progress)
            for _ in range(options.repetitions)
        ]
    return {
        "limit_bytes": limit,
        "whole_bytes": needed,
        "refusal": said,
        "worst_difference": compared.worst,
        "rounds": [asdict(one) for one in rounds],
    }


def figures(found: Mapping[str, Any]) -> list[Figure]:
    """Told as `benchmarks.report` does."""
    rounds, limit = found["rounds"], found["limit_bytes"]
    held = [
        [board["held_peak_bytes"] / limit for board in one["boards"].values()] for one in rounds
    ]
    used = [
        [
            board["agent_peak_bytes"] / board["predicted_bytes"]
            for board in one["boards"].values()
            if board["agent_peak_bytes"] is not None
        ]
        for one in rounds
    ]
    dropped = [sum(board["failcnt"] or 0 for board in one["boards"].values()) for one in rounds]
    killed = sum(one["forced_exit_code"] == -9 for one in rounds)
    return [
        Figure("a board's memory limit", limit / 1e6, "MB"),
        Figure("what the whole network takes on one board", found["whole_bytes"] / 1e6, "MB"),
        Figure(
            "the planner, asked for the whole on one board",
            "refuses" if found["refusal"] else "accepts",
        ),
        Figure(
            "ONNX Runtime, made to load the whole on one board: killed", killed,
            f"of {len(rounds)} times", at_least=len(rounds),
        ),
        Figure("agents or children killed", sum(one["oom_kills"] for one in rounds), at_most=0),
        Figure(
            "subnets optimised with less memory, for want of it",
            statistics.median(one["lightly_optimised"] for one in rounds),
        ),
        _worst("most that a board held and no file backs ÷ its limit", held, 1.0),
        _worst("agent's peak ÷ its plan's prediction", used, 1.1),
        Figure.of("page cache dropped to stay below the limit (failcnt)", dropped, "times"),
        Figure("difference from the whole network", found["worst_difference"], at_most=TOLERANCE),
    ]  # fmt: skip


def _worst(what: str, readings: Sequence[Sequence[float]], at_most: float) -> Figure:
    """Of the board that is worst in any run; the spread is over all boards and runs."""
    every = [value for one in readings for value in one]
    return Figure(what, max(every), at_most=at_most, low=min(every), high=max(every))


def main() -> int:
    parser = arguments("benchmarks.memory_limit", __doc__)
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--share", type=float, default=3.0, help="of the whole, a board's inverse")
    parser.add_argument("--strategy", default="sequential")
    parser.add_argument("--cpu", type=float, default=0.4, help="cores per board")
    parser.add_argument("--frames", type=int, default=12)
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
