"""Partition a network, and run it on a cluster, from a Python program."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ga.strategies import find_strategy
from launcher.progress import LineProgress
from launcher.run.request import Request
from launcher.streaming import job
from launcher.streaming.live_cluster import LiveCluster, open_cluster
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
    target: str | Path,
    *,
    strategy: str | None = None,
    profile: str | None = None,
    most_in_flight: int = 64,
) -> LiveCluster:
    """Deploy a network over the nodes of a `cluster.yaml`, or of a saved plan's folder.

    Returns once the nodes have loaded their subnets. Use it in a `with` statement: that ends the
    agents that were started, and leaves others free. At most `most_in_flight` frames are in flight;
    further ones wait, or are refused (`LiveCluster.submit`). `strategy` and `profile` are as for
    `launch`. Progress goes to standard error. Raises `LauncherError` with a sentence for the user.
    """
    request = Request(
        Path(target), strategy=strategy, profile=None if profile is None else Path(profile)
    )
    with LineProgress(sys.stderr) as progress:
        return open_cluster(request, progress, most=most_in_flight)


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
    with LineProgress(sys.stderr) as progress:
        return job.launch(request, progress, started_s=time.monotonic())
