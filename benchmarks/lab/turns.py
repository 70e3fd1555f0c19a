"""Runs replicas of the whole model, or a pipeline over all boards, in turns on a laboratory.

A pipeline's rate is taken in its steady state: from the result by which it has surely filled up to
the departure of its last frame, because boards that have no more work while it drains leave the
machine to the others. While it fills, boards compute early phases only and put more frames on their
way than later, when older frames come first. So as many results are left out as there are places on
the way, and twice as many count.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import numpy as np

from benchmarks.lab.counted import Counted, Round
from benchmarks.lab.lab import Lab
from benchmarks.lab.replica import frame, load
from benchmarks.lab.replicas import Replicas, replicas
from cnn.model import Model
from csdf.conversion.from_network import SINK, SOURCE
from launcher.config.load import Cluster
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner
from launcher.plan.profile.use import profile_file
from launcher.plan.settings import run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Array, RunResult, SubnetFiles
from partition.plan import Plan

FULL_FRAMES = 4
"""Results per board that are left out at least."""


class OneFrame:
    """`count` times the same frame."""

    def __init__(self, data: Mapping[str, Array], count: int) -> None:
        self._data, self._count = data, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Mapping[str, Array]:
        return self._data


class Compared:
    """Takes results, and keeps how far the worst was from the whole model's (relative)."""

    def __init__(self, expected: Mapping[str, Array]) -> None:
        self._expected = expected
        self.worst = 0.0

    def __call__(self, _: int, outputs: Mapping[str, Array]) -> None:
        for name, wanted in self._expected.items():
            largest = float(np.abs(outputs[name] - wanted).max() / np.abs(wanted).max())
            self.worst = max(self.worst, largest)


@dataclass(frozen=True)
class Reference:
    """The whole network as one subnet, a frame, and what the network makes of it."""

    graph: Path
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


def reference(model: Model, folder: Path) -> Reference:
    """Cut the whole network into `folder`, and compute a frame."""
    network = model.network
    graph = model.cut(network.layer, network.inputs, network.outputs, folder / "whole").graph
    subnet = load(graph, folder / "cache")
    inputs = frame(subnet)
    outputs = subnet.run(inputs)
    subnet.close()
    return Reference(graph, inputs, outputs)


def planned(
    cluster: Cluster, model: Model, folder: Path, progress: ProgressDisplay
) -> tuple[Plan, Mapping[str, SubnetFiles]]:
    """The plan that `launch` makes for a laboratory's cluster, and its subnets in `folder`."""
    plan = Planner(cluster, model, profile_file(cluster, model)).plan(progress)
    return plan, cut_subnets(model, plan, folder / "subnets", lambda _, __: None)


@dataclass(frozen=True)
class Whole:
    """The whole model on every board of a laboratory, and the frame that everybody computes."""

    lab: Lab
    alone: Replicas
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    def turn(self, seconds: float) -> Round:
        """All replicas at once for so long; the rate is their sum."""
        counted = Counted(self.lab)
        rates = self.alone.run(seconds)
        return counted.round(sum(rates.values()), {n: rate * seconds for n, rate in rates.items()})


@contextmanager
def whole_on_every_board(lab: Lab, model: Model, folder: Path) -> Iterator[Whole]:
    """Start the replicas, idle until their turn; `folder` is for passing files.

    Raises `LabError` if one ends early.
    """
    found = reference(model, folder)
    with lab.beside(), replicas(lab, found.graph, folder / "cache") as alone:
        yield Whole(lab, alone, found.inputs, found.outputs)


def pipeline_turn(
    lab: Lab,
    cluster: Cluster,
    plan: Plan,
    subnets: Mapping[str, SubnetFiles],
    whole: Whole,
    frames: int,
) -> tuple[Round, RunResult, float]:
    """Stream `plan` in its steady state for about `frames` frames.

    Returns also how far its worst result was from the whole model's, relative to the largest value.
    """
    started: list[Counted] = []
    compared = Compared(whole.outputs)
    skipped = filling_frames(plan)

    def take(number: int, outputs: Mapping[str, Array]) -> None:
        if number == skipped:
            started.append(Counted(lab))
        compared(number, outputs)

    count = skipped + 1 + max(frames, 2 * most_in_flight(plan)) + depth(plan)
    result = run(
        plan,
        nodes_of(cluster),
        subnets,
        listed(OneFrame(whole.inputs, count), take),
        lambda _: None,
        run_options(cluster),
    )
    rate = steady_rate(result.sent_s, result.received_s, skipped, len(plan.dealing))
    computed = dict.fromkeys(lab.layout.places, float(count - skipped - 1))
    return started[0].round(rate, computed), result, compared.worst


def filling_frames(plan: Plan) -> int:
    """Results that are left out, while the pipeline fills."""
    return max(FULL_FRAMES * len(plan.devices), most_in_flight(plan))


def most_in_flight(plan: Plan) -> int:
    """The most frames that are on their way at once: the places on the way with the fewest."""
    ways = nx.DiGraph()
    for channel in plan.channels:
        for target in channel.targets:
            places = channel.capacity_frames * len(set(plan.dealing))
            known = ways.get_edge_data(channel.source, target, {"places": places})
            ways.add_edge(channel.source, target, places=min(places, known["places"]))
    return int(nx.shortest_path_length(ways, SOURCE, SINK, weight="places"))


def depth(plan: Plan) -> int:
    """Frames that are on their way at once, about: what is drained at the end."""
    return max((phase.skew for phase in plan.phases), default=0) + 1


def steady_rate(
    sent_s: Sequence[float], received_s: Sequence[float], skipped: int, cycle: int = 1
) -> float:
    """Results per second after `skipped` of them and until the last frame departed.

    Where fewer than two results lie between (a pipeline deeper than the run is long), until the
    last result. Results of copies of the network, to which frames are dealt out in cycles of so
    many, come in bursts; so whole cycles count, if there is one.
    """
    last = bisect.bisect_right(received_s, sent_s[-1]) - 1
    if last - skipped < max(2, cycle):
        last = len(received_s) - 1
    if last - skipped > cycle:
        last -= (last - skipped) % cycle
    return (last - skipped) / (received_s[last] - received_s[skipped])
