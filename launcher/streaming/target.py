"""Reads the cluster or the saved plan that a request names, with what its options change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.config.cluster import JournalConfig
from launcher.config.ends.kinds import parsed_source
from launcher.config.ends.looks import is_source, is_video_file
from launcher.config.load import Cluster, load_cluster
from launcher.config.network import RANDOM
from launcher.config.run import RunConfig
from launcher.config.units import parse_batch, parse_duration, parsed_option
from launcher.errors import BadInputError
from launcher.files import check_can_write
from launcher.plan.files import (
    CLUSTER,
    FRONT,
    SavedPlan,
    is_plan,
    no_target,
    read_plan,
)
from launcher.run.request import Request

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class LoadedTarget:
    """The cluster that a request names, with what the request changes in it, and its plan if that
    is saved."""

    cluster: Cluster
    saved: SavedPlan | None


def load_target(request: Request, instead: Cluster | None = None) -> LoadedTarget:
    """Read what `request` names, or take another cluster `instead`; raises `BadInputError`."""
    check_can_write(request.trace, "--trace")
    check_can_write(request.report, "--report")
    target, saved = request.target, None
    if instead is None and is_plan(target):
        folder = target if target.is_dir() else target.parent
        saved = read_plan(folder)
        target = folder / CLUSTER
        if request.strategy is not None:
            raise BadInputError(
                f"--strategy {request.strategy}: {str(folder)!r} is a plan, whose layers have "
                "their nodes already; give its cluster.yaml to search again"
            )
        if request.batch is not None:
            raise BadInputError(
                f"--batch {request.batch}: {str(folder)!r} is a plan, which is for its own number "
                "of frames at once; give its cluster.yaml to search again"
            )
    elif instead is None and (
        target.is_dir() or (not target.exists() and (target.parent / FRONT).exists())
    ):
        target = target / CLUSTER
        if not target.exists():
            raise no_target(request.target)
    cluster = load_cluster(target) if instead is None else instead
    changes: dict[str, Any] = {
        "frames": request.frames,
        "strategy": request.strategy,
        "seed": request.seed,
        "batch": request.batch and parsed_option("--batch", parse_batch, request.batch),
        "max_latency": request.max_latency
        and parsed_option("--max-latency", parse_duration, request.max_latency),
        "verify": request.verify,
        "tolerance": request.tolerance,
        "journal": request.journal and _journal(cluster, request.journal),
        "run": _given_run(cluster, request),
        "recovery": request.rebalance
        and cluster.config.recovery.model_copy(update={"rebalance": request.rebalance}),
    }
    if request.inputs:
        changes["input"] = cluster.config.input.model_copy(update=_given_input(request.inputs))
        cluster = cluster.changed(truth=None)  # it belongs to the inputs of cluster.yaml
    given = {key: value for key, value in changes.items() if value is not None}
    return LoadedTarget(cluster.changed(**given), saved)


def _given_run(cluster: Cluster, request: Request) -> RunConfig | None:
    given = {"order": request.order, "start": request.start}
    update = {key: value for key, value in given.items() if value is not None}
    return cluster.config.run.model_copy(update=update) if update else None


def _given_input(inputs: Sequence[str]) -> dict[str, Any]:
    """The keys `files` and `source` that `--input` gives, with paths from the current folder."""
    if len(inputs) == 1 and is_source(inputs[0]):
        given = _absolute(inputs[0]) if is_video_file(inputs[0]) else inputs[0]
        return {"files": (), "source": parsed_source(given)}
    files = (name if name == RANDOM or is_source(name) else _absolute(name) for name in inputs)
    return {"files": tuple(files), "source": None}


def _absolute(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute())


def _journal(cluster: Cluster, folder: Path) -> JournalConfig:
    """The journal in another folder, with the bound of `cluster.yaml`."""
    given = cluster.config.journal
    path = str(Path(os.path.expanduser(folder)).absolute())
    return JournalConfig(folder=path, keep=None if given is None else given.keep)
