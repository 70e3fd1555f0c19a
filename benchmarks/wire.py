"""Measures what encoding tensors between nodes gains where links are slow, in the laboratory:

    python -m benchmarks.wire [--devices 4] [--cpu 0.05] [--links 100Mbit/s 10Mbit/s]
                              [--wires fp32 lossless fp16 int8 auto] [--tolerance 0.05]
                              [--repetitions 2] [--seconds 20] [--json]

For every rate of the boards' links, the strategy plans once for every value of `wire:`, and the
plans run in turns. The launcher's own link stays fast: what is looked at are tensors between
boards. Times of layers are estimates, from the speed at which this machine computes the whole
network and the share of a core that a board has. Plans are first deployed over fast links, because
moving weights is not measured here. Rates are those of the steady state, and results are compared
with the whole model's. It needs root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.replica import frame, load
from benchmarks.report import Figure, Table, print_figures, report
from benchmarks.slow_links import FAST, FEWEST_FRAMES, Boards
from cnn.model import Model
from launcher.config.load import Cluster, load_cluster
from launcher.config.units import parse_link
from launcher.errors import LauncherError
from launcher.plan.planner import Planner
from launcher.plan.settings import read_model
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay, open_progress
from launcher.run.runtime import SubnetFiles
from partition.plan import Plan

STRATEGY = "sequential"


@dataclass
class Turns:
    """The plan for one value of `wire:` at one rate of the links, and what its turns gave."""

    link: str
    wire: str
    plan: Plan
    subnets: Mapping[str, SubnetFiles]
    rates: list[float] = field(default_factory=list)
    deviation: float = 0.0

    @property
    def rate(self) -> float:
        """The median of the frames per second."""
        return statistics.median(self.rates)

    @property
    def encodings(self) -> str:
        """Of the channels between boards, in order."""
        ends = ((c, (c.source_device, c.target_device)) for c in self.plan.channels)
        return ", ".join(c.encoding for c, pair in ends if "@host" not in pair and not c.is_local)


def plan_of(cluster: Cluster, model: Model, progress: ProgressDisplay) -> Plan:
    """Return the strategy's plan."""
    return Planner(cluster, model).plan(progress, strategy=STRATEGY)


def at_rate(
    boards: Boards,
    link: str,
    macs_per_s: float,
    options: argparse.Namespace,
    progress: ProgressDisplay,
) -> list[Turns]:
    """Plan for every value of `wire:`, then measure the plans in turns over links of this rate."""
    update = {"link": parse_link(link), "macs_per_s": macs_per_s}
    nodes = tuple(node.model_copy(update=update) for node in boards.cluster.config.nodes)
    turns = []
    boards.links(parse_link(FAST))
    for wire in options.wires:
        cluster = boards.cluster.changed(nodes=nodes, wire=wire, tolerance=options.tolerance)
        plan = plan_of(cluster, boards.model, progress)
        place = boards.folder / f"{link.replace('/', '-')}-{wire}"
        subnets = cut_subnets(boards.model, plan, place, lambda _, __: None)
        boards.stream(plan, subnets, 2)
        turns.append(Turns(link, wire, plan, subnets))
        progress.say(f"{link}, {wire}: predicted {1 / plan.period_s:.2f} frames/s")
    for device in boards.lab.addresses:
        boards.lab.slow(device, parse_link(link))
    for _ in range(options.repetitions):
        for one in turns:
            frames = max(FEWEST_FRAMES, round(options.seconds / one.plan.period_s))
            measured, off = boards.stream(one.plan, one.subnets, frames)
            one.rates.append(measured)
            one.deviation = max(one.deviation, off)
            progress.say(f"{link}, {one.wire}: {measured:.2f} frames/s")
    return turns


def measure(options: argparse.Namespace, progress: ProgressDisplay) -> list[Turns]:
    """Make the boards, and look at every rate."""
    config = LabConfig(
        name="wire",
        defaults=BoardConfig(cpu=options.cpu, link=parse_link(FAST)),
        launcher_link=parse_link(FAST),
        devices=(DeviceConfig(count=options.devices),),
        cluster={"model": options.model, "strategy": STRATEGY},
    )
    with tempfile.TemporaryDirectory(prefix="wire-") as place, Lab(config) as lab:
        folder, cluster = Path(place), load_cluster(lab.cluster_file)
        model = read_model(cluster)
        network = model.network
        layers = [layer.name for layer in network.layers]
        whole = model.cut(layers, network.inputs, network.outputs, folder / "whole")
        subnet = load(whole.graph, folder / "cache")
        inputs = frame(subnet)
        outputs = subnet.run(inputs)
        began_s = time.thread_time()
        subnet.run(inputs)
        speed = sum(layer.macs for layer in network.layers) / (time.thread_time() - began_s)
        subnet.close()
        boards = Boards(lab, cluster, model, folder, inputs, outputs)
        return [
            turns
            for link in options.links
            for turns in at_rate(boards, link, speed * options.cpu, options, progress)
        ]


def figures(found: Sequence[Turns]) -> list[Figure]:
    """How much more each value of `wire:` gives than raw tensors, turn by turn."""
    raw = {one.link: one for one in found if one.wire == "fp32"}
    listed = []
    for one in found:
        if one.wire != "fp32" and one.link in raw:
            ratios = [a / b for a, b in zip(one.rates, raw[one.link].rates, strict=True)]
            what = f"{one.link}: {one.wire} ÷ fp32, in frames/s"
            ratio, low, high = statistics.median(ratios), min(ratios), max(ratios)
            listed.append(Figure(what, ratio, "×", low=low, high=high))
    return listed


def table(found: Sequence[Turns]) -> Table:
    """Every plan that ran."""
    columns = (
        "links", "wire", "boards", "channels between them", "MB per frame", "frames/s predicted",
        "measured", "deviation",
    )  # fmt: skip
    rows = [
        (
            one.link,
            one.wire,
            str(len({phase.device for phase in one.plan.phases})),
            one.encodings,
            f"{one.plan.bytes_per_frame / 1e6:.2f}",
            f"{1 / one.plan.period_s:.2f}",
            f"{one.rate:.2f} ({min(one.rates):.2f}–{max(one.rates):.2f})",
            f"{one.deviation:.1e}",
        )
        for one in found
    ]
    return Table("Plans by the rate of the boards' links and by `wire:`", columns, tuple(rows))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=4)
    parser.add_argument("--cpu", type=float, default=0.05, help="cores per board")
    parser.add_argument("--links", nargs="+", default=["100Mbit/s", "10Mbit/s"])
    parser.add_argument("--wires", nargs="+", default=["fp32", "lossless", "fp16", "int8", "auto"])
    parser.add_argument("--tolerance", type=float, default=0.05)
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn, about")
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    try:
        machine.require()
        with open_progress() as progress:
            found = measure(options, progress)
    except LauncherError as error:
        print(f"wire: {error}", file=sys.stderr)
        return error.exit_code
    listed, plans = figures(found), table(found)
    settings = {
        "network": options.model,
        "boards": options.devices,
        "cores of a board": options.cpu,
        "tolerance": options.tolerance,
        "repetitions": options.repetitions,
    }
    title = "Encoded tensors over slow links"
    data = report("wire", title, listed, settings=settings, tables=[plans])
    if not options.json:
        for row in plans.rows:
            print("  ".join(row))
    return print_figures(data, listed, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
