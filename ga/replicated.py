"""Several pipelines side by side, each with a copy of the network, and frames dealt out to them.

A pipeline over all devices is as fast as its slowest stage, and the more stages it has, the more
they differ: layers do not divide evenly, an engine fuses less, and each cut moves bytes. Here the
devices form groups of about equal speed, each group divides a copy of the network among its
members, and frames go to the groups in proportion to their speed. The price is memory: with c
groups, each device holds about c times the weights that one pipeline would give it. This lies
between one pipeline (`vertical`, `sequential`) and a copy on each device (`batch-split`).

Each number of groups is tried with contiguous cuts. For the number that `ga.ranking` ranks first,
the search of `vertical` also divides each group.

Sources: J. Subhlok and G. Vondran, "Optimal latency-throughput tradeoffs for data parallel
pipelines", SPAA 1996, replicate and merge the tasks of a pipeline; Vanishree et al. deal frames in
a fixed cyclic pattern (see `partition.strategies.batch_split`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from cnn.rewrite.rewrites import Copies, copy_name
from ga.ranking import preference_for, ranking
from ga.vertical import Vertical
from partition.errors import PartitionError
from partition.planner import plan_solution
from partition.pricing.linear_models import LinearTime, deal_frames
from partition.strategies.alike import likeness
from partition.strategies.base import (
    Problem,
    SearchProgress,
    Solution,
    Strategy,
    apply_rewrites,
    ignore_progress,
    refuse_state,
    required_model,
)
from partition.strategies.batch_split import LONGEST_CYCLE, TOLERANCE
from partition.strategies.contiguous.sequential import Sequential

Group: TypeAlias = tuple[int, ...]
"""The numbers of the devices of one pipeline."""


@dataclass(frozen=True)
class _Pipeline:
    """A group's copy: for each layer the index of its device in the group, and the period."""

    places: tuple[int, ...]
    period_s: float


class Replicated:
    """See the module's docstring."""

    name = "replicated"

    def __init__(self, fewest: int = 1, search: Strategy | None = None) -> None:
        """Set the least number of pipelines, and the search that replaces `vertical`."""
        self._fewest = fewest
        self._search = search

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`.

        With pins, or with fewer than four devices, the only possibility is one pipeline. Raises
        `PartitionError` if no number of groups gives a plan that fits the devices' memory, and for
        a network that keeps state from frame to frame.
        """
        refuse_state(problem, self.name)
        counts = self.counts(problem)
        if not counts:
            raise PartitionError(
                f"{len(problem.devices)} devices do not make {self._fewest} pipelines of two, or "
                "pins forbid it"
            )
        required_model(problem, self.name)
        found: list[tuple[float, int, Solution]] = []
        refusals: list[PartitionError] = []
        rank = ranking(problem)

        def attempt(step: int, count: int, within: Strategy) -> None:
            shown = f"{count} pipelines by {within.name}"
            problem.on_progress(SearchProgress(step, len(counts) + 1, shown))
            try:
                solution = _solution(problem, count, within)
                plan = plan_solution(problem, solution, self.name)
            except PartitionError as error:  # it does not fit
                refusals.append(error)
            else:
                found.append((rank(plan), count, solution))

        for step, count in enumerate(counts):
            attempt(step, count, Sequential())
        if not found:
            raise refusals[0]
        _, count, _ = min(found, key=itemgetter(0))
        attempt(len(counts), count, self._search or Vertical(preference_for(problem)))
        _, _, best = min(found, key=itemgetter(0))
        done = len(counts) + 1
        problem.on_progress(SearchProgress(done, done, f"{count} pipelines"))
        return best

    def counts(self, problem: Problem) -> range:
        """Return the possible numbers of pipelines."""
        most = 1 if problem.pins else max(1, len(problem.devices) // 2)
        return range(self._fewest, most + 1)


def _solution(problem: Problem, count: int, within: Strategy) -> Solution:
    """Return the solution with `count` groups, each of which divides its copy by `within`."""
    groups = groups_of(problem, count)
    solved: dict[Hashable, _Pipeline] = {}
    for group in groups:
        if (kind := _kind(problem, group)) not in solved:
            solved[kind] = _pipeline(problem, group, within)
    pipelines = [solved[_kind(problem, group)] for group in groups]
    if count == 1:
        assignment = problem.assignment(np.array(pipelines[0].places))
        return Solution(assignment, f"one pipeline, divided by {within.name}")
    frames = frames_per_pipeline([pipeline.period_s for pipeline in pipelines])
    rewrites = (Copies(frames),)
    copied = apply_rewrites(problem, required_model(problem, Replicated.name), rewrites)
    assignment = {
        copy_name(layer.name, copy): problem.devices[group[place]].name
        for copy, (group, pipeline) in enumerate(zip(groups, pipelines, strict=True), start=1)
        for layer, place in zip(problem.network.layers, pipeline.places, strict=True)
    }
    names = "; ".join(
        ", ".join(problem.devices[number].name for number in group) for group in groups
    )
    explanation = (
        f"{count} pipelines ({names}), each with a copy divided by {within.name}; of "
        f"{sum(frames)} frames they get {' : '.join(map(str, frames))}"
    )
    return Solution(assignment, explanation, rewrites=rewrites, network=copied.network)


def groups_of(problem: Problem, count: int) -> tuple[Group, ...]:
    """Divide the devices into `count` groups of about equal speed, whose sizes differ by at most
    one.

    The fastest remaining device goes to the slowest group that has room.
    """
    speed = 1 / np.maximum(problem.costs.layer_s.sum(axis=0), np.finfo(float).tiny)
    sizes = [len(speed) // count + (place < len(speed) % count) for place in range(count)]
    groups: list[list[int]] = [[] for _ in sizes]
    for number in sorted(range(len(speed)), key=lambda number: (-speed[number], number)):
        with_room = [place for place in range(count) if len(groups[place]) < sizes[place]]
        slowest = min(with_room, key=lambda place: speed[groups[place]].sum())
        groups[slowest].append(number)
    return tuple(tuple(sorted(group)) for group in groups)


def frames_per_pipeline(periods_s: Sequence[float]) -> tuple[int, ...]:
    """Return how many frames of a cycle each pipeline gets, at least one.

    The cycle is the shortest of at most `LONGEST_CYCLE` frames whose period is within `TOLERANCE`
    of the best.

    >>> frames_per_pipeline([1.0, 2.0])
    (2, 1)
    """
    speeds = [LinearTime(0.0, period_s) for period_s in periods_s]
    cycles = [deal_frames(speeds, frames) for frames in range(len(speeds), LONGEST_CYCLE + 1)]
    usable = [cycle for cycle in cycles if all(cycle)] or [(1,) * len(speeds)]

    def period_s(cycle: Sequence[int]) -> float:
        each = (count * own for count, own in zip(cycle, periods_s, strict=True))
        return max(each) / sum(cycle)

    best = min(map(period_s, usable))
    return next(cycle for cycle in usable if period_s(cycle) <= best * (1 + TOLERANCE))


def _kind(problem: Problem, group: Group) -> Hashable:
    """Return a key that is equal for groups that are divided alike."""
    return tuple(likeness(problem, number) for number in group)


def _pipeline(problem: Problem, group: Group, within: Strategy) -> _Pipeline:
    part = replace(
        problem,
        devices=tuple(problem.devices[number] for number in group),
        layer_s=None if problem.layer_s is None else problem.layer_s[:, list(group)],
        on_progress=ignore_progress,
    )
    solution = within.solve(part)
    plan = plan_solution(part, solution, within.name)
    return _Pipeline(tuple(part.numbers(solution.assignment).tolist()), plan.period_s)
