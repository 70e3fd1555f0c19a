"""Partition a network, and run it on a cluster, from a Python program."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ga.strategies import find_strategy
from launcher.config.cluster import ClusterConfig
from launcher.config.load import cluster_from
from launcher.progress import LineDisplay, program_progress
from launcher.run.parts import parts_of
from launcher.run.request import Request
from launcher.streaming import job
from launcher.streaming.live_cluster import LiveCluster, open_cluster
from launcher.streaming.target import load_target
from launcher.tasks.opening import assumed
from partition.objective import DEFAULT_OBJECTIVE, Objective
from partition.planner import find_plan
from partition.strategies.base import Problem

if TYPE_CHECKING:
    from cnn.model import Model
    from partition.devices import Device
    from partition.plan import Plan


def partition_network(
    model: Model,
    devices: Sequence[Device],
    strategy: str = "auto",
    objective: Objective = DEFAULT_OBJECTIVE,
    seed: int = 0,
) -> Plan:
    """Return a plan of `model` over `devices`, which is proved free of deadlock.

    `strategy` is one of the names of `launch --strategy`. Raises `PartitionError` if no plan fits,
    or if there is no such strategy.

    >>> from csdf_edge import Device, read_network
    >>> model = read_network("examples/digits/digits.onnx")
    >>> plan = partition_network(model, [Device("a"), Device("b")], strategy="sequential")
    >>> sorted(set(plan.assignment.values()))
    ['a', 'b']
    """
    problem = Problem(model.network, tuple(devices), seed=seed, objective=objective, model=model)
    return find_plan(problem, find_strategy(strategy)).plan


def open(  # noqa: A001 - as in `csdf_edge.open("cluster.yaml")`
    target: str | Path | Mapping[str, Any] | ClusterConfig,
    *,
    strategy: str | None = None,
    profile: str | None = None,
    most_in_flight: int = 64,
    progress: bool = True,
) -> LiveCluster:
    """Deploy a network over the nodes of a `cluster.yaml`, or of a saved plan's folder.

    Instead of a file, `target` may be its content, as a dict or a `ClusterConfig`; relative paths
    in it begin at the current folder. Returns once the nodes have loaded their subnets. Use it in a
    `with` statement: that ends the agents that were started, and leaves others free. At most
    `most_in_flight` frames are in flight; further ones wait, or are refused (`LiveCluster.submit`).
    `strategy` and `profile` are as for `launch`. Progress goes to standard error, in a notebook to
    one output of the cell; without `progress`, only warnings are logged. Raises `LauncherError`
    with a sentence for the user.
    """
    request = Request(
        Path(target) if isinstance(target, str | Path) else Path(),
        strategy=strategy,
        profile=None if profile is None else Path(profile),
    )
    given = None if isinstance(target, str | Path) else cluster_from(target, Path())
    loaded = load_target(request, given)
    with program_progress(shown=progress) as display:

        def say_what_is_assumed(model: Model) -> None:
            for part in parts_of(model):
                if sentence := assumed(loaded.cluster, part.model):
                    display.say(sentence)

        return open_cluster(
            request, display, most=most_in_flight, loaded=loaded, check=say_what_is_assumed
        )


def launch(request: Request) -> job.Outcome:
    """Do what the command `launch` does, and return the plan and the report.

    Progress is written to standard error. Raises `LauncherError`, whose message is a sentence for
    the user.

    >>> from pathlib import Path
    >>> from csdf_edge import Request
    >>> target = Path("examples/digits/cluster.yaml")
    >>> launch(Request(target, strategy="sequential", plan_only=True)).plan.strategy
    'sequential'
    """
    with LineDisplay(sys.stderr) as progress:
        return job.launch(request, progress, started_s=time.monotonic())
