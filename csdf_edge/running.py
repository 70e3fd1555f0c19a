"""Partition a network and launch a cluster from a Python program."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ga.strategies import find_strategy
from launcher.progress import LineProgress
from launcher.run import job
from partition.objective import Objective
from partition.planner import plan_solution
from partition.strategies.base import Problem

if TYPE_CHECKING:
    from cnn.model import Model
    from launcher.run.request import Request
    from partition.devices import Device
    from partition.plan import Plan


def partition_network(
    model: Model,
    devices: Sequence[Device],
    strategy: str = "auto",
    objective: Objective = "period",
    seed: int = 0,
) -> Plan:
    """Return a plan of `model` over `devices`, proved free of deadlock.

    `strategy` has the names of `launch --strategy`. Raises `PartitionError` if no plan fits
    or there is no such strategy.
    """
    problem = Problem(model.network, tuple(devices), seed=seed, objective=objective, model=model)
    solution = find_strategy(strategy).solve(problem)
    return plan_solution(problem, solution, model_digest=model.digest, strategy=strategy)


def launch(request: Request) -> job.Outcome:
    """Do what the command `launch` does, and return the plan and the report.

    Progress goes to standard error. Raises `LauncherError` with a sentence for the user.
    """
    with LineProgress(sys.stderr) as progress:
        return job.launch(request, progress, started_s=time.monotonic())
