"""Finds the plans among which speed and memory can be traded (`csdf-edge partition front`).

`launcher.plan.front` says which plans these points are. All figures are predictions. The
**speed-up** is the period of one device alone (`partition.alone`), divided by the point's; it
includes links, firings and cutting, unlike the bound that `csdf-edge partition solve` prints.
**Saved** is how much less memory the fullest device holds than one device alone, and **beside
idle** the same without what an idle agent holds, which no plan changes.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ga.both import columns, order
from launcher.commands.options import FrontOptions
from launcher.commands.problems import Search, equal_cluster, read_search
from launcher.errors import BadInputError
from launcher.files import write_text
from launcher.plan.files import FRONT, check_front_folder, save_plan
from launcher.plan.front import candidates, point_name, price, undominated
from launcher.plan.planner import configured, watched
from launcher.progress import ProgressDisplay, open_progress
from launcher.quantities import megabytes, seconds
from launcher.results.report_text import print_table
from launcher.results.tables import RowTable
from partition.alone import (
    alone_as_json,
    beside_idle_bytes,
    fullest_bytes,
    fullest_eq2_bytes,
    plan_alone,
    saved_percent,
)
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import as_run
from partition.strategies.base import Strategy

PICTURE = "front.svg"


@dataclass(frozen=True)
class FrontPoint:
    """A plan of the front under its name; `alone` is the whole network on one device."""

    name: str
    strategy: str
    plan: Plan
    alone: Plan

    @property
    def memory_bytes(self) -> int:
        """The predicted memory of the fullest device."""
        return fullest_bytes(self.plan)

    @property
    def speedup(self) -> float:
        """See the module's docstring."""
        return self.alone.period_s / self.plan.period_s

    @property
    def memory_saving_percent(self) -> float:
        """See the module's docstring."""
        return saved_percent(self.memory_bytes, fullest_bytes(self.alone))

    @property
    def beside_idle_saving_percent(self) -> float:
        """See the module's docstring."""
        return saved_percent(beside_idle_bytes(self.plan), beside_idle_bytes(self.alone))

    @property
    def memory_eq2_bytes(self) -> int:
        """The fullest device's memory by Eq. 2 of Tang & Stefanov."""
        return fullest_eq2_bytes(self.plan)

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data."""
        plan = self.plan
        return {
            "name": self.name,
            "strategy": self.strategy,
            "explanation": plan.explanation,
            "period_s": plan.frame_s,
            "frames_per_s": 1 / plan.frame_s,
            "latency_s": plan.latency_s,
            "speedup": self.speedup,
            "memory_bytes": self.memory_bytes,
            "memory_saving_percent": self.memory_saving_percent,
            "beside_idle_saving_percent": self.beside_idle_saving_percent,
            "memory_eq2_bytes": self.memory_eq2_bytes,
            "phases": len(plan.phases),
            "bytes_per_frame": plan.bytes_per_frame,
        }


@dataclass(frozen=True)
class PlanFront:
    """The points, the fastest first, and how they were found.

    `dominated` are the figures (period, memory of the fullest device) of the other plans that were
    priced, and `seconds` is the duration of the search. `folder` has what was written.
    """

    search: Search
    points: tuple[FrontPoint, ...]
    dominated: tuple[tuple[float, int], ...]
    seconds: float
    folder: Path | None = None

    @property
    def alone(self) -> Plan:
        """The whole network on the device that is fastest alone."""
        return self.points[0].alone

    @property
    def within(self) -> float:
        """By how much the period that the objective `both` accepts may exceed the shortest."""
        problem = self.search.problem
        return problem.within * (1 - problem.within_margin)

    @property
    def chosen(self) -> FrontPoint:
        """The point that the objective `both` takes."""
        problem = self.search.problem
        return self.points[order(problem, [columns(problem, each.plan) for each in self.points])[0]]

    def as_json(self) -> dict[str, Any]:
        """Return JSON-like data."""
        problem, alone, folder = self.search.problem, self.alone, self.folder
        return {
            "network": alone.network,
            "devices": [device.name for device in problem.devices],
            "strategy": self.search.strategy.name,
            "seed": problem.seed,
            "within": self.within,
            "chosen": self.chosen.name,
            "alone": alone_as_json(alone),
            "points": [point.as_json() for point in self.points],
            "priced": len(self.points) + len(self.dominated),
            "seconds": self.seconds,
            "folder": None if folder is None else str(folder),
        }

    def print(self) -> None:
        """Print a row for each point, and what to do next."""
        print_table(_table(self), _lines(self))


def perform(options: FrontOptions) -> PlanFront:
    """Find the front, and save it if asked to; raises `BadInputError`."""
    if options.output is not None:
        check_front_folder(options.output)
    with open_progress() as progress:
        search = read_search(options, progress, "both")
        front = find_front(search, progress)
        if options.output is not None:
            front = _saved(front, options, options.output)
            progress.say(f"saved in {options.output}")
    return front


def find_front(search: Search, progress: ProgressDisplay) -> PlanFront:
    """Search, price what was found, and keep what is not dominated; raises `BadInputError`."""
    problem, strategy = search.problem, _strategy(search)
    began_s = time.monotonic()
    pricing = partial(progress.update, "pricing")
    try:
        solution = strategy.solve(watched(problem, strategy, progress))
        found = candidates(problem, strategy.name, solution)
        priced = price(problem, found, pricing)
        alone = plan_alone(problem)
    except PartitionError as error:
        raise BadInputError(str(error)) from error
    kept = [replace(each, plan=as_run(problem, each.plan)) for each in undominated(priced)]
    points = tuple(
        FrontPoint(point_name(number), each.strategy, each.plan, alone)
        for number, each in enumerate(undominated(kept), start=1)
    )
    shown = {(point.plan.frame_s, point.memory_bytes) for point in points}
    others = {(each.plan.frame_s, each.fullest_bytes) for each in (*priced, *kept)} - shown
    return PlanFront(search, points, tuple(sorted(others)), time.monotonic() - began_s)


def _strategy(search: Search) -> Strategy:
    """Return the strategy itself, also where a profile has chosen a plan in its place."""
    if search.planner is None:
        return search.strategy
    return configured(search.planner.cluster.config.ga, search.strategy.name)


def _saved(front: PlanFront, options: FrontOptions, folder: Path) -> PlanFront:
    """Write the folder of a front except for the picture; raises `BadInputError`."""
    saved = replace(front, folder=folder)
    planner = front.search.planner
    cluster = equal_cluster(options) if planner is None else planner.cluster
    for point in front.points:
        save_plan(folder / point.name, point.plan, cluster, "--output")
    text = json.dumps(saved.as_json(), indent=1, ensure_ascii=False) + "\n"
    write_text(folder / FRONT, text, f"--output {str(folder)!r}")
    return saved


def _table(front: PlanFront) -> RowTable:
    heads = ("point", "frames/s", "period", "speed-up", "memory", "saved", "over idle", "phases",
             "sent/frame", "strategy")  # fmt: skip
    rows = [
        (
            point.name,
            f"{1 / point.plan.frame_s:.2f}",
            seconds(point.plan.frame_s),
            f"{point.speedup:.2f}×",
            megabytes(point.memory_bytes),
            f"{point.memory_saving_percent:.1f} %",
            f"{point.beside_idle_saving_percent:.1f} %",
            str(len(point.plan.phases)),
            megabytes(point.plan.bytes_per_frame),
            point.strategy,
        )
        for point in front.points
    ]
    return RowTable(heads, rows, ("strategy",))


def _lines(front: PlanFront) -> list[str]:
    alone, chosen, folder = front.alone, front.chosen, front.folder
    lines = [
        f"one device alone, {alone.phases[0].device}: {seconds(alone.frame_s)} per frame, "
        f"{megabytes(fullest_bytes(alone))}; speed-up and savings are relative to it",
        f"the objective both takes {chosen.name}: of all points within {front.within:.0%} of the "
        "shortest period, its fullest device holds least",
        f"{len(front.points)} of {len(front.points) + len(front.dominated)} different plans, which "
        f"{front.search.strategy.name} found in {front.seconds:.1f} s; times are {alone.times}",
    ]
    if folder is None:
        return [*lines, "--output FOLDER saves each point as a plan, and a picture"]
    return [*lines, f"saved in {folder}; launch {folder / chosen.name} runs {chosen.name}"]
