"""Tests whether the planner chooses well as links get slower, in the laboratory:

    python -m benchmarks.slow_links [--devices 4] [--links 1Gbit/s 100Mbit/s 10Mbit/s]
                                    [--repetitions 2] [--seconds 12] [--profile FILE] [--json]

Emulated accelerator boards are profiled (`csdf-edge partition profile`). Then, for every rate, all
boards' links and the launcher's own get that rate, and `auto` plans with the profiled times of
layers, not with measured plans. Two runs alternate over these links: one board alone, and the
chosen plan. Where the chosen plan is one board, the second run is the plan of several boards with
the shortest predicted period. Both are first deployed once over fast links, because moving weights
is not measured here.

Rates are those of the steady state, and results are compared with the whole model's. It needs root;
see docs/laboratory.md for what emulation leaves out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.profiling import profile
from benchmarks.lab.replica import frame, load
from benchmarks.lab.turns import Compared, OneFrame, depth, steady_rate
from benchmarks.report import Figure, Table, print_json, report
from benchmarks.undisturbed import undisturbed
from cnn.model import Model
from launcher.config.load import Cluster, load_cluster
from launcher.config.units import parse_link
from launcher.errors import BadInputError, LauncherError
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner, configured
from launcher.plan.settings import read_model, run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.profile.use import profile_file, with_profile_option
from launcher.progress import ProgressDisplay, open_progress
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Array, SubnetFiles
from partition.plan import Plan
from partition.planner import foreseen_plan
from partition.strategies.base import Solution

STRATEGY = "auto"
FAST = "1Gbit/s"
"""Over which boards are measured and weights are moved."""

FEWEST_FRAMES = 12
"""That a rate is taken from."""


@dataclass(frozen=True)
class Turns:
    """A plan, and the frames per second of its turns."""

    plan: Plan
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median."""
        return statistics.median(self.rates)

    @property
    def devices(self) -> int:
        """How many take part."""
        return len({phase.device for phase in self.plan.phases})


@dataclass(frozen=True)
class AtRate:
    """What was found at one rate of all links. `rival` is a plan with several boards where one
    board was chosen, one board alone elsewhere; `ratios` are chosen ÷ rival, turn by turn.
    `difference` is that of the worst result to the whole model's, relative to its largest value."""

    link: str
    explanation: str
    chosen: Turns
    rival: Turns
    difference: float

    @property
    def ratios(self) -> tuple[float, ...]:
        """How much better the planner's choice was."""
        return tuple(a / b for a, b in zip(self.chosen.rates, self.rival.rates, strict=True))


@dataclass(frozen=True)
class Boards:
    """A laboratory, its cluster, and a frame with what the whole model makes of it."""

    lab: Lab
    cluster: Cluster
    model: Model
    folder: Path
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    def links(self, bytes_per_s: float) -> None:
        """Give all links, the launcher's too, this rate."""
        self.lab.slow_launcher(bytes_per_s)
        for device in self.lab.addresses:
            self.lab.slow(device, bytes_per_s)

    def stream(
        self, plan: Plan, subnets: Mapping[str, SubnetFiles], frames: int
    ) -> tuple[float, float]:
        """(frames per second once the pipeline is full, how far off the worst result was)."""
        compared = Compared(self.outputs)
        filled = depth(plan) + 1
        result = run(
            plan,
            nodes_of(self.cluster),
            subnets,
            listed(OneFrame(self.inputs, frames + 2 * filled), compared),
            lambda _: None,
            run_options(self.cluster),
        )
        cycle = len(plan.dealing)
        return steady_rate(result.sent_s, result.received_s, filled, cycle), compared.worst


def at_rate(
    boards: Boards, link: str, options: argparse.Namespace, progress: ProgressDisplay
) -> AtRate:
    """Plan for links of this rate, then measure the choice and its rival over them."""
    rate = parse_link(link)
    nodes = tuple(n.model_copy(update={"link": rate}) for n in boards.cluster.config.nodes)
    cluster = boards.cluster.changed(nodes=nodes, launcher_link=rate)
    chosen, rival = _plans(cluster, boards.model, progress)
    progress.say(f"{link}: {chosen.explanation}")
    boards.links(parse_link(FAST))
    plans = []
    for number, plan in enumerate((chosen, rival)):
        files = boards.folder / f"{link.replace('/', '-')}-{number}"
        subnets = cut_subnets(boards.model, plan, files, lambda _, __: None)
        boards.stream(plan, subnets, 2)
        plans.append((plan, subnets, max(FEWEST_FRAMES, round(options.seconds / plan.period_s))))
    boards.links(rate)
    rates: tuple[list[float], ...] = ([], [])
    worst = 0.0
    for _ in range(options.repetitions):
        for found, (plan, subnets, frames) in zip(rates, plans, strict=True):
            measured, off = boards.stream(plan, subnets, frames)
            worst = max(worst, off)
            found.append(measured)
            progress.say(f"{link}: {measured:.2f} frames/s, predicted {1 / plan.period_s:.2f}")
    first, second = (Turns(p[0], tuple(found)) for p, found in zip(plans, rates, strict=True))
    return AtRate(link, chosen.explanation, first, second, worst)


def _plans(cluster: Cluster, model: Model, progress: ProgressDisplay) -> tuple[Plan, Plan]:
    """What `auto` chooses, and what it is to be compared with."""
    planner = Planner(cluster, model, profile_file(cluster, model))
    problem = planner.problem()
    found = planner.find(problem, progress, configured(cluster.config.ga, STRATEGY))
    chosen, solution = found.plan, found.solution
    is_alone = _devices(solution) == 1
    rivals = [each for each in solution.others if (_devices(each) == 1) is not is_alone]
    if not rivals:
        raise BadInputError("the planner knows nothing to compare its choice with")
    plans = [foreseen_plan(problem, each, STRATEGY) for each in rivals]
    return chosen, min(plans, key=lambda plan: plan.period_s)


def _devices(solution: Solution) -> int:
    return len(set(solution.assignment.values()))


def measure(options: argparse.Namespace, progress: ProgressDisplay) -> list[AtRate]:
    """Make the boards, measure them, and look at every rate."""
    config = LabConfig(
        name="links",
        undisturbed=True,
        defaults=BoardConfig(cpu=options.cpu, link=parse_link(FAST)),
        launcher_link=parse_link(FAST),
        devices=(DeviceConfig(count=options.devices),),
        cluster={"model": options.model, "strategy": STRATEGY},
    )
    with tempfile.TemporaryDirectory(prefix="slow-links-") as place, Lab(config) as lab:
        folder, cluster = Path(place), load_cluster(lab.cluster_file)
        file = folder / "profile.json" if options.profile is None else options.profile
        if not file.exists():
            profile(lab, file)
        cluster = with_profile_option(cluster, file)
        model = read_model(cluster)
        network = model.network
        layers = [layer.name for layer in network.layers]
        whole = model.cut(layers, network.inputs, network.outputs, folder / "whole")
        subnet = load(whole.graph, folder / "cache")
        inputs = frame(subnet)
        outputs = subnet.run(inputs)
        subnet.close()
        boards = Boards(lab, cluster, model, folder, inputs, outputs)
        return [at_rate(boards, link, options, progress) for link in options.links]


def figures(found: Sequence[AtRate]) -> list[Figure]:
    """What was asked: the choice is right at every rate, and not the same at all."""
    listed = []
    for one in found:
        low, high = min(one.ratios), max(one.ratios)
        rival = "one board alone" if one.chosen.devices > 1 else f"{one.rival.devices} boards"
        what = f"{one.link}: {_name(one.chosen)}, as chosen, ÷ {rival}"
        ratio = statistics.median(one.ratios)
        listed.append(Figure(what, ratio, "×", at_least=1.0, low=low, high=high))
    plans = {tuple(sorted(one.chosen.plan.assignment.items())) for one in found}
    listed.append(Figure("different plans", len(plans), at_least=min(2, len(found))))
    listed.append(Figure("largest difference of a result", max(one.difference for one in found)))
    return listed


def _name(turns: Turns) -> str:
    return f"{turns.devices} boards" if turns.devices > 1 else "one board"


def table(found: Sequence[AtRate]) -> Table:
    """Every plan that ran, the chosen one of a rate first."""
    columns = (
        "links", "plan", "boards", "phases", "MB per frame", "frames/s predicted", "measured",
    )  # fmt: skip
    rows = [
        (
            one.link,
            turns.plan.explanation if turns is one.chosen else f"not chosen: {_rival(turns)}",
            str(turns.devices),
            str(len(turns.plan.phases)),
            f"{turns.plan.bytes_per_frame / 1e6:.2f}",
            f"{1 / turns.plan.period_s:.2f}",
            f"{turns.rate:.2f} ({min(turns.rates):.2f}–{max(turns.rates):.2f})",
        )
        for one in found
        for turns in (one.chosen, one.rival)
    ]
    return Table("Plans by the rate of all links", columns, tuple(rows))


def _rival(turns: Turns) -> str:
    return turns.plan.explanation.partition(": ")[0] if turns.devices > 1 else "one board alone"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--links", nargs="+", default=[FAST, "100Mbit/s", "10Mbit/s"])
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--cpu", type=float, default=0.2, help="cores per board")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each turn, about")
    parser.add_argument(
        "--profile", type=Path, help="where the boards' measurements are kept, for another time"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    try:
        machine.require()
        with undisturbed() as how, open_progress() as progress:
            found = measure(options, progress)
    except LauncherError as error:
        print(f"slow_links: {error}", file=sys.stderr)
        return error.exit_code
    listed, plans = figures(found), table(found)
    settings = {
        "network": options.model,
        "boards": options.devices,
        "cores of a board": options.cpu,
        "repetitions": options.repetitions,
        "priority": how,
    }
    notes = [
        "The launcher's own link has the rate of the boards' links. A frame of 224 × 224 × 3 "
        "values is 0.6 MB, 0.48 s at 10 Mbit/s whatever is planned: there it is the input that "
        "binds one board, and no plan could be faster."
    ]
    data = report(
        "slow_links", "Slow links", listed, settings=settings, notes=notes, tables=[plans]
    )
    if options.json:
        print_json(data)
    else:
        for row in plans.rows:
            print("  ".join(row))
        for one in listed:
            print(f"{one.what}: {one.measured:.3g} {one.unit} {one.holds}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
