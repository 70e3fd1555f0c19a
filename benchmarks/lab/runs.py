"""Plans a network for the boards of a laboratory, and streams frames through the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cnn.model import Model
from launcher.config.load import Cluster
from launcher.plan.devices import nodes_of
from launcher.plan.planner import Planner
from launcher.plan.profile.use import profile_file
from launcher.plan.settings import run_options
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay
from launcher.run.frame_list import listed
from launcher.run.runner import run
from launcher.run.runtime import Frames, OnResult, RunResult, SubnetFiles
from nodes.protocol.payload import Array
from partition.plan import Plan


@dataclass(frozen=True)
class Planned:
    """A plan for a cluster's nodes, and its subnets on disk."""

    cluster: Cluster
    model: Model
    plan: Plan
    subnets: Mapping[str, SubnetFiles]

    def stream(
        self, frames: Frames | Sequence[Mapping[str, Array]], on_result: OnResult, **changes: Any
    ) -> RunResult:
        """Run the plan on the cluster's agents; `changes` are of `RunOptions`."""
        options = replace(run_options(self.cluster), **changes)
        return run(
            self.plan, nodes_of(self.cluster), self.subnets, listed(frames, on_result),
            lambda _: None, options,
        )  # fmt: skip


def planned(cluster: Cluster, model: Model, folder: Path, progress: ProgressDisplay) -> Planned:
    """Make the plan that `launch` makes for the cluster, and its subnets in `folder`."""
    plan = Planner(cluster, model, profile_file(cluster, model)).plan(progress)
    return Planned(
        cluster, model, plan, cut_subnets(model, plan, folder / "subnets", lambda _, __: None)
    )
