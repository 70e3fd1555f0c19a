"""Measures the time from agents that are ready to the first result of a cluster:

    python -m benchmarks.start_up [--devices 10] [--links 1Gbit/s 100Mbit/s] [--json]

The boards are emulated accelerator boards (`benchmarks.lab`). The launcher's own link is as fast as
each board's, so all weights pass through it one after the other. With the agents running and the
plan cut, the plan is deployed twice, and some frames are streamed each time:

- **first**: all caches are empty. The time from the greeting to the first result must be at most 3
  times what the bytes of all subnets take on the launcher's link, or those of any one board on its
  own link, whichever is longer.
- **again**: every node has its subnets, prepared for its engine. At most 3 s.

The report also gives when the last node was welcomed, had its subnets, and was ready. Emulated
boards share this machine's CPUs, also for work that a real board does beside its executor thread;
on a machine with few CPUs, these and not the link limit the figure of the faster link. It needs
root.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig, machine
from benchmarks.lab.replica import frame, load
from benchmarks.lab.turns import Compared, OneFrame
from benchmarks.report import Figure, print_json, report
from benchmarks.undisturbed import undisturbed
from launcher.config.load import Cluster, load_cluster
from launcher.config.units import parse_link
from launcher.errors import LauncherError
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner
from launcher.plan.settings import read_model, run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.profile.use import profile_file
from launcher.progress import ProgressDisplay, open_progress
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import SubnetFiles, Update
from partition.plan import Plan

AT_MOST, AGAIN_S = 3.0, 3.0
FRAMES = 4


class Stages:
    """When each stage of a run was last heard of: seconds from its start."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self.ended_s: dict[str, float] = {}

    def __call__(self, update: Update) -> None:
        if update.stage and update.stage != "streaming":
            self.ended_s[update.stage] = time.monotonic() - self._began_s


def deploy(
    cluster: Cluster, plan: Plan, subnets: Mapping[str, SubnetFiles], frames: OneFrame,
    compared: Compared,
) -> dict[str, float]:  # fmt: skip
    """Seconds to the first result, and to the end of each stage before."""
    stages = Stages()
    networks = listed(frames, compared)
    result = run(plan, nodes_of(cluster), subnets, networks, stages, run_options(cluster))
    return {**stages.ended_s, "first result": result.first_result_s}


def sizes(plan: Plan, subnets: Mapping[str, SubnetFiles]) -> dict[str, int]:
    """Bytes that each node has to be sent."""
    found: dict[str, dict[str, int]] = {}
    for phase in plan.phases:
        files = subnets[phase.name]
        for path in (files.graph, files.weights):
            if path is not None:
                found.setdefault(phase.device, {})[path.name] = path.stat().st_size
    return {device: sum(blobs.values()) for device, blobs in found.items()}


class Start:
    """Links of one rate: its plan, and the rounds that were measured."""

    def __init__(self, link: float, options: argparse.Namespace, folder: Path) -> None:
        """`link` in bytes per second; `folder` is its own."""
        self._link, self._folder = link, folder
        self._config = LabConfig(
            name="startup",
            undisturbed=True,
            defaults=BoardConfig(cpu=options.cpu, link=link),
            devices=(DeviceConfig(count=options.devices),),
            launcher_link=link,
            cluster={"model": options.model, "strategy": options.strategy},
        )
        self.rounds: list[dict[str, dict[str, float]]] = []

    def round(self, progress: ProgressDisplay) -> None:
        """Both deployments on new boards."""
        with Lab(self._config) as lab:
            cluster = load_cluster(lab.cluster_file)
            if not self.rounds:
                self._prepare(cluster, progress)
            given = (cluster, self._plan, self._subnets, self._frames, self._compared)
            self.rounds.append({kind: deploy(*given) for kind in ("first", "again")})
        progress.say(str(self.rounds[-1]))

    def _prepare(self, cluster: Cluster, progress: ProgressDisplay) -> None:
        model, folder = read_model(cluster), self._folder
        self._plan = Planner(cluster, model, profile_file(cluster, model)).plan(progress)
        self._subnets = cut_subnets(model, self._plan, folder / "subnets", lambda _, __: None)
        network = model.network
        layers = [layer.name for layer in network.layers]
        whole = model.cut(layers, network.inputs, network.outputs, folder / "whole")
        subnet = load(whole.graph, folder / "cache")
        self._frames = OneFrame(frame(subnet), FRAMES)
        self._compared = Compared(subnet.run(self._frames[0]))
        subnet.close()

    def found(self) -> dict[str, Any]:
        """What all rounds say."""
        each = sizes(self._plan, self._subnets)
        return {
            "link_bytes_per_s": self._link,
            "bytes": sum(each.values()),
            "reference_s": max(sum(each.values()), *each.values()) / self._link,
            "rounds": self.rounds,
            "worst_difference": self._compared.worst,
            "strategy": self._plan.strategy,
            "phases": len(self._plan.phases),
        }


def measure(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Link → what was found; they take turns."""
    with tempfile.TemporaryDirectory(prefix="start-up-") as place, open_progress() as progress:
        starts = {
            link: Start(parse_link(link), options, Path(place) / str(number))
            for number, link in enumerate(options.links)
        }
        for _ in range(options.repetitions):
            for start in starts.values():
                start.round(progress)
        return {link: start.found() for link, start in starts.items()}


def figures(found: Mapping[str, Any], link: str) -> list[Figure]:
    """Told as `benchmarks.report` does."""
    first = [one["first"]["first result"] for one in found["rounds"]]
    again = [one["again"]["first result"] for one in found["rounds"]]
    times = [seconds / found["reference_s"] for seconds in first]
    listed = [
        Figure(f"{link}: all subnets on the launcher's link", found["reference_s"], "s"),
        Figure(
            f"{link}: from the greeting to the first result", statistics.median(first), "s",
            low=min(first), high=max(first),
        ),
        Figure(
            f"{link}: that ÷ the time on the link", statistics.median(times), "×",
            at_most=AT_MOST, low=min(times), high=max(times),
        ),
        Figure(
            f"{link}: deployed again, to the first result", statistics.median(again), "s",
            at_most=AGAIN_S, low=min(again), high=max(again),
        ),
    ]  # fmt: skip
    for stage in found["rounds"][0]["first"]:
        ends = [one["first"][stage] for one in found["rounds"] if stage in one["first"]]
        if stage != "first result":
            listed.append(Figure(f"{link}: end of {stage}", statistics.median(ends), "s"))
    return listed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=10)
    parser.add_argument("--links", nargs="+", default=["1Gbit/s", "100Mbit/s"])
    parser.add_argument("--model", default="onnx-wheel:resnet50")
    parser.add_argument("--strategy", default="sequential")
    parser.add_argument("--cpu", type=float, default=0.2, help="cores per board")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="one JSON object and nothing else")
    options = parser.parse_args()
    ort.set_default_logger_severity(4)
    try:
        machine.require()
        with undisturbed():
            found = measure(options)
    except LauncherError as error:
        print(f"start_up: {error}", file=sys.stderr)
        return error.exit_code
    listed = [figure for link, one in found.items() for figure in figures(one, link)]
    if options.json:
        settings = {key: value for key, value in vars(options).items() if key != "json"}
        title = "Start of a cluster: from agents that are ready to the first result"
        notes = [
            "First: nobody has anything. Again: every node has its subnets. On new boards each "
            "time, links in turn; the launcher's own link is as fast as a board's, so all weights "
            "pass it one after the other.",
        ]
        print_json(report("start_up", title, listed, settings=settings, notes=notes, data=found))
    else:
        for one in listed:
            asked = "" if one.holds is None else f"  ({'holds' if one.holds else 'DOES NOT HOLD'})"
            print(f"{one.what}: {one.measured:.3g} {one.unit}{asked}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
