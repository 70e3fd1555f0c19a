"""Measures all cells of one network on a number of boards, in one laboratory.

Pipelines and replicas take turns. Every agent restarts before each pipeline, so that the peak of
its memory is this plan's; its files on disk remain."""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.lab import BoardConfig, DeviceConfig, Lab, LabConfig
from benchmarks.lab.profiling import profile
from benchmarks.lab.turns import Whole, filling_frames, pipeline_turn, steady_rate
from benchmarks.lab.turns import whole_on_every_board as whole_on
from benchmarks.table3.order import FEWEST_FRAMES, results_of
from benchmarks.table3.paper import NETWORKS
from benchmarks.table3.turn import AgentMemory, Boards, Cell, Planned, Refused, Turn
from launcher.config.load import Cluster, load_cluster
from launcher.errors import LauncherError
from launcher.plan.machines import THIS_MACHINE
from launcher.plan.planner import Planner
from launcher.plan.prediction import predicted_run, times_of, with_warmup
from launcher.plan.profile.use import profile_file, with_profile_option
from launcher.plan.settings import read_model
from launcher.plan.subnet_files import cut_subnets
from launcher.progress import ProgressDisplay
from launcher.run.runtime import RunResult, SubnetFiles
from partition.plan import Plan

LAB_NAME = "table3"

LOOK_S = 3.0
"""How long the replicas compute to see how fast they are, at least a frame each."""


@dataclass(frozen=True)
class _Ready:
    """A cell's plan and its files."""

    cluster: Cluster
    plan: Plan
    planned: Planned
    subnets: Mapping[str, SubnetFiles]


def measure(
    cells: Sequence[Cell], boards: Boards, seconds: float, progress: ProgressDisplay
) -> Generator[Turn | Refused, None, None]:
    """One turn after the other, in this order; a cell may stand there several times.

    All are of one network and number of boards. A turn lasts `seconds`, or longer on slow boards
    (`FEWEST_FRAMES`). Raises `LauncherError` for what concerns them all.
    """
    network, count = cells[0].network, cells[0].devices
    config = LabConfig(
        name=LAB_NAME,
        undisturbed=True,
        defaults=BoardConfig(board="cpu" if boards.board == "cpu" else "accelerator",
                             cpu=boards.cores(count), link=boards.link),
        devices=(DeviceConfig(count=count),),
        cluster={"model": NETWORKS.get(network, network)},
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="table3-") as place, Lab(config) as lab:
        folder, cluster = Path(place), load_cluster(lab.cluster_file)
        if boards.profiled:
            cluster = with_profile_option(cluster, profile(lab, folder / "profile.json"))
        model = read_model(cluster)
        planner = Planner(cluster, model, profile_file(cluster, model))
        alone_s = float(planner.problem().costs.layer_s[:, 0].sum())
        ready: dict[Cell, _Ready] = {}
        refused: set[Cell] = set()
        for number, cell in enumerate(dict.fromkeys(cells)):
            own = cluster.changed(
                strategy=cell.strategy, objective=cell.objective, within=boards.within
            )
            try:
                plan = replace(planner, cluster=own).plan(progress)
            except LauncherError as error:
                refused.add(cell)
                yield Refused(cell, boards, str(error))
                continue
            files = cut_subnets(model, plan, folder / f"subnets{number}", lambda _, __: None)
            ready[cell] = _Ready(own, plan, _planned(plan, alone_s), files)
        if not ready:
            return
        with whole_on(lab, model, folder) as whole:
            seconds = max(seconds, FEWEST_FRAMES * count / whole.turn(LOOK_S).rate)
            before = whole.turn(seconds).rate
            for cell in cells:
                if cell in refused:
                    continue
                try:
                    frames = results_of(before, seconds, ready[cell].planned.speedup, count)
                    found, result = _pipeline(lab, ready[cell], whole, frames)
                except LauncherError as error:
                    refused.add(cell)
                    yield Refused(cell, boards, str(error))
                    continue
                after = whole.turn(seconds).rate
                yield Turn(
                    cell=cell,
                    boards=boards,
                    seconds=seconds,
                    planned=ready[cell].planned,
                    replicas=(before, after),
                    memory=_memory(ready[cell].plan, result),
                    **found,
                )
                before = after


def _planned(plan: Plan, alone_s: float) -> Planned:
    return Planned(
        strategy_says=plan.explanation,
        phases=len(plan.phases),
        rate=1 / plan.period_s,
        speedup=alone_s / plan.period_s,
        latency_s=plan.latency_s,
        bytes_per_frame=plan.bytes_per_frame,
    )


def _pipeline(
    lab: Lab, ready: _Ready, whole: Whole, frames: int
) -> tuple[dict[str, float], RunResult]:
    lab.renew(keep=whole.alone.processes)
    plan, order = ready.plan, ready.cluster.config.run.order
    one, result, difference = pipeline_turn(lab, ready.cluster, plan, ready.subnets, whole, frames)
    expected = predicted_run(with_warmup(plan, result), result, order, THIS_MACHINE)
    skipped = min(filling_frames(plan), len(expected.received_s) // 3)
    count = len(result.received_s)
    received = sum(stats.received_bytes for stats in result.stats.values())
    return {
        "rate": one.rate,
        "latency_s": times_of(result.sent_s, result.received_s).latency_s,
        "foreseen_rate": steady_rate(
            expected.sent_s, expected.received_s, skipped, len(plan.dealing)
        ),
        "foreseen_latency_s": times_of(expected.sent_s, expected.received_s).latency_s,
        "sent_bytes_per_frame": received / count + sum(a.nbytes for a in whole.outputs.values()),
        "busiest_slice": max(one.slice_use.values()),
        "other_s_per_frame": sum(one.other_s.values()),
        "difference": difference,
        "others": one.others,
        "machine_use": one.machine_use,
    }, result


def _memory(plan: Plan, result: RunResult) -> dict[str, AgentMemory]:
    """Of every board that takes part."""
    return {
        name: AgentMemory(
            eq2=plan.memory[name].eq2_bytes,
            predicted=plan.memory[name].total_bytes,
            peak=stats.rss_peak_bytes,
            idle=result.idle_rss_bytes[name],
            resident=stats.rss_bytes,
            anonymous=stats.anonymous_bytes,
        )
        for name, stats in result.stats.items()
    }
