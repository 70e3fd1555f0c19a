"""Measures what adapting to a slow node gains, in the laboratory (`benchmarks.lab`):

    python -m benchmarks.adaptation [--frames 300] [--starve 0.4] [--repetitions 2] [--json]

Three emulated boards run a network. After `--at` results, the middle board keeps only `--starve`
of its processor, like a board that overheats or runs another program. The benchmark reports frames
per second before that, while the old plan continues, and after the change of plans, and the same
without adapting, in alternation. Frames differ, and every result must be that of its frame (the
first `KINDS` frames represent all others); lost, doubled and wrong results are counted.

It needs root; see docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.report import Figure, print_json, report
from benchmarks.undisturbed import undisturbed
from cnn.model import Model
from cnn.network import Network
from launcher.config.load import Cluster, load_cluster
from launcher.config.run import RecoveryConfig
from launcher.errors import LauncherError
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner
from launcher.plan.replanning import Replanner
from launcher.plan.settings import read_model, run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.profile.use import profile_file
from launcher.progress import ProgressDisplay, open_progress
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Array, RunResult, Update
from partition.plan import Plan

STARVED = "node2"
KINDS = 8
FILLING = 9
"""Results that are left out after each change, while the pipeline fills."""


class Kinds:
    """`count` frames of `KINDS` kinds in turn."""

    def __init__(self, network: Network, count: int) -> None:
        random = np.random.default_rng(0)
        self._count = count
        self._frames = [
            {
                name: random.standard_normal(network.tensors[name].shape, dtype=np.float32)
                for name in network.inputs
            }
            for _ in range(KINDS)
        ]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Mapping[str, Array]:
        return self._frames[index % KINDS]


class Ledger:
    """Takes results, counts what is not as it must be, and starves the board on the way."""

    def __init__(self, lab: Lab, at: int, cpu: float) -> None:
        self.doubled = self.wrong = self.taken = 0
        self._seen: set[int] = set()
        self._kinds: dict[int, Mapping[str, Array]] = {}
        self._lab, self._at, self._cpu = lab, at, cpu

    def __call__(self, frame: int, outputs: Mapping[str, Array]) -> None:
        self.taken += 1
        self.doubled += frame in self._seen
        self._seen.add(frame)
        first = self._kinds.setdefault(frame % KINDS, outputs)
        if not all(np.allclose(first[n], outputs[n], rtol=1e-3, atol=1e-4) for n in first):
            self.wrong += 1
        if frame == self._at:
            self._lab.starve(STARVED, self._cpu)


@dataclass(frozen=True)
class Course:
    """One run: frames per second before the board was starved, with the old plan, with the new."""

    adapt: bool
    before: float
    starved: float
    after: float | None
    pause_s: float | None
    wall_s: float
    lost: int
    doubled: int
    wrong: int
    changes: tuple[str, ...]


def course(
    lab: Lab,
    cluster: Cluster,
    model: Model,
    plan: Plan,
    folder: Path,
    options: argparse.Namespace,
    progress: ProgressDisplay,
    *,
    adapt: bool,
) -> Course:
    """One run over boards that have all of their processors at first."""
    lab.starve(STARVED, options.cpu)
    subnets = cut_subnets(model, plan, folder / "subnets", lambda _, __: None)
    ledger = Ledger(lab, options.at, options.cpu * options.starve)
    replanner = Replanner(Planner(cluster, model, profile_file(cluster, model)), folder)
    recovery = RecoveryConfig(adapt=adapt)

    def tell(update: Update) -> None:
        if not update.stage:
            progress.say(update.text)

    result = run(
        plan,
        nodes_of(cluster),
        subnets,
        listed(Kinds(model.network, options.frames), ledger),
        tell,
        replace(run_options(cluster), recovery=recovery, replan=replanner),
    )
    replanner.close()
    return _told(result, ledger, options, adapt=adapt)


def _told(result: RunResult, ledger: Ledger, options: argparse.Namespace, *, adapt: bool) -> Course:
    came = result.received_s
    slow = [past for past in result.recoveries if past.cause == "slow" and past.frame > options.at]
    changed = slow[0].frame if slow else len(came)
    last = slow[-1].frame if slow else len(came)

    def rate(first: int, end: int) -> float:
        return (end - 1 - first) / (came[end - 1] - came[first])

    return Course(
        adapt=adapt,
        before=rate(FILLING, options.at),
        starved=rate(options.at + FILLING, changed),
        after=rate(last + FILLING, len(came)) if slow else None,
        pause_s=came[changed] - came[changed - 1] if slow else None,
        wall_s=came[-1] - came[0],
        lost=options.frames - ledger.taken + ledger.doubled,
        doubled=ledger.doubled,
        wrong=ledger.wrong,
        changes=tuple("; ".join(past.reasons) for past in result.recoveries),
    )


def measure(options: argparse.Namespace) -> list[Course]:
    """With and without adapting, on the same boards, in an order that changes."""
    config = LabConfig(
        name="adapt",
        undisturbed=True,
        defaults=BoardConfig(cpu=options.cpu),
        devices=(DeviceConfig(count=3),),
        cluster={"model": options.model, "strategy": "sequential"},
    )
    with (
        tempfile.TemporaryDirectory(prefix="adaptation-") as place,
        Lab(config) as lab,
        open_progress() as progress,
    ):
        cluster = load_cluster(lab.cluster_file)
        model = read_model(cluster)
        plan = Planner(cluster, model, profile_file(cluster, model)).plan(progress)
        given = (lab, cluster, model, plan, Path(place), options, progress)
        return [
            course(*given, adapt=adapt)
            for number in range(options.repetitions)
            for adapt in (number % 2 == 0, number % 2 == 1)
        ]


def figures(courses: Sequence[Course]) -> list[Figure]:
    """For people and for the table. `courses`: as many with adapting as without."""
    adapted = [one for one in courses if one.adapt]
    left = [one for one in courses if not one.adapt]
    changed = [(a, b) for a, b in zip(adapted, left, strict=True) if a.after is not None]
    rates = "frames/s"
    found = [
        _figure("before, with adapting", [one.before for one in adapted], rates),
        _figure("board starved, plan not yet changed", [one.starved for one in adapted], rates),
        Figure("runs that changed their plan", len(changed), at_least=len(adapted)),
    ]
    if changed:
        gains = [(a.after or 0.0) / b.starved for a, b in changed]
        found += [
            _figure("after the plan was changed", [a.after or 0.0 for a, _ in changed], rates),
            _figure("pause of the change", [a.pause_s or 0.0 for a, _ in changed], "s"),
            replace(_figure("after ÷ without adapting", gains, "×"), at_least=1.0),
        ]
    return [
        *found,
        _figure("before, without adapting", [one.before for one in left], rates),
        _figure("board starved, without adapting", [one.starved for one in left], rates),
        _figure("whole run with adapting", [one.wall_s for one in adapted], "s"),
        _figure("whole run without", [one.wall_s for one in left], "s"),
        Figure("frames lost", sum(one.lost for one in courses), at_most=0),
        Figure("frames doubled", sum(one.doubled for one in courses), at_most=0),
        Figure("frames wrong", sum(one.wrong for one in courses), at_most=0),
    ]


def _figure(what: str, values: Sequence[float], unit: str) -> Figure:
    low, high = round(min(values), 2), round(max(values), 2)
    return Figure(what, round(statistics.median(values), 2), unit, low=low, high=high)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--at", type=int, default=60, help="the result that starves the board")
    parser.add_argument("--cpu", type=float, default=0.2, help="cores per board")
    parser.add_argument("--starve", type=float, default=0.4, help="the part that is left of it")
    parser.add_argument("--repetitions", type=int, default=2, help="of each of both")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    try:
        machine.require()
        with undisturbed():
            courses = measure(options)
    except LauncherError as error:
        print(f"adaptation: {error}", file=sys.stderr)
        return error.exit_code
    found = figures(courses)
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        title = "A board that slows down in the middle of a run"
        notes = [
            f"In the middle of each run {STARVED} of three is left with the part `starve` of its "
            "processor. Runs with adapting and without take turns."
        ]
        raw = {"courses": [asdict(one) for one in courses]}
        print_json(report("adaptation", title, found, settings=settings, notes=notes, data=raw))
    else:
        for one in found:
            print(f"{one.what:<40} {one.measured} {one.unit}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
