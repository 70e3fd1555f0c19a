"""The optimal partition, or one with a proved optimality gap, by constraint programming.

The goals of the problem's objective (`partition.strategies.exact.goals`) are minimised one after
the other, each without giving up any of the last (the incremental solving of Yin et al., §IV-B).
OR-Tools CP-SAT proves each minimum, or gives a bound when its time is over.

The model counts the linear terms of the cost model (`partition.strategies.exact.loads`). It never
counts too much, so its bounds hold for the cost model too. The solution is priced with the cost
model itself, and its distance from the bound is the reported gap. Memory limits are
constraints; where a solution exceeds one by what the linear terms leave out, the limit is tightened
by as much and the search repeated, while the bounds remain those of the limits as they are.

Source: J. Yin, Z. Zhang, C. Yu, "Exact memory- and communication-aware scheduling of DNNs on
pipelined edge TPUs", IEEE/ACM Symposium on Edge Computing, 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.pricing.traffic import Floats, frames_between_devices
from partition.strategies.base import Problem, SearchProgress, Solution, Strategy
from partition.strategies.exact.answer import Answer, GoalAnswer
from partition.strategies.exact.goals import Goal, goals
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Placement, Shape
from partition.strategies.exact.refusals import check, refusal
from partition.strategies.exact.search import SolverEffort, Watch, minimise
from partition.strategies.exact.starts import starts
from partition.strategies.exact.terms import Terms, terms_of

REPEATS = 4
"""How often limits are tightened before an overfull solution is handed over as it is."""

MARGIN_BYTES = 1 << 16
"""By how much more than the excess a limit is tightened."""

PROGRESS = 1000
"""Steps of the progress that is reported."""


class Exact:
    """See the module's docstring; `others` contribute assignments to start from."""

    def __init__(
        self,
        name: str = "exact",
        shape: Shape | None = None,
        effort: SolverEffort | None = None,
        others: Sequence[Strategy] = (),
    ) -> None:
        self.name = name
        self._shape = shape or Shape()
        self._effort = effort or SolverEffort()
        self._others = tuple(others)

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` if there is no such partition, telling
        which constraint excludes it, or if none was found in time."""
        check(problem, self._shape)
        answer: Answer | None = None
        for slack_frames in dict.fromkeys((problem.slack_frames, 0)):
            attempt = replace(problem, slack_frames=slack_frames)
            found = self._within_limits(attempt)
            answer = found or answer
            if found is not None and found.fits:
                break
        if answer is None:
            raise refusal(problem, self._shape)
        problem.on_progress(SearchProgress(PROGRESS, PROGRESS, answer.steps[0].sentence))
        return Solution(
            problem.assignment(answer.numbers),
            f"{_KIND[self._shape.contiguous]} by constraint programming: {answer.sentence}",
            optimal=answer.is_optimal,
            gap=answer.gap,
        )

    def _within_limits(self, problem: Problem) -> Answer | None:
        """The best that fits the devices' memory by the cost model, or that exceeds it least of
        what was found; None if there is nothing."""
        limits = [device.memory_bytes for device in problem.devices]
        first: Answer | None = None
        for _ in range(REPEATS):
            answer = self._search(problem, limits)
            if answer is None:
                return first
            if first is not None:
                answer = answer.bounded_by(first)
            if answer.fits:
                return answer
            first = first or answer
            held = problem.costs.evaluate(answer.numbers[None]).memory_bytes[0]
            limits = [
                limit if limit is None or real is None else _tightened(limit, own - real)
                for limit, own, real in zip(
                    limits, held, (d.memory_bytes for d in problem.devices), strict=True
                )
            ]
        return first

    def _search(self, problem: Problem, limits: Sequence[int | None]) -> Answer | None:
        """The best by the linear terms; None if there is proved to be nothing within `limits`."""
        terms = terms_of(problem)
        placement = Placement(terms, self._shape)
        loads = LoadVariables(placement)
        loads.keep_within(limits, frames_between_devices(problem.slack_frames))
        ahead = goals(terms, loads)
        given = starts(terms, self._shape, self._others)
        best = _start(terms, ahead[0], placement, given)
        found: list[tuple[Goal, float, bool]] = []
        for number, goal in enumerate(ahead):
            effort = self._effort.share(number, len(ahead))
            watch = _watch(problem, goal, effort, number / len(ahead), 1 / len(ahead))
            outcome = minimise(placement, goal.expression(), effort, problem.seed, watch)
            if outcome.status == "impossible":
                return None
            if outcome.values:
                best = np.array(placement.numbers(outcome.value_of), dtype=np.intp)
                placement.model.add(goal.expression() <= outcome.value)
                placement.suggest(outcome.values)
            found.append((goal, outcome.bound * goal.unit, outcome.status == "proved"))
        if best is None:
            raise PartitionError(
                f"no partition was found in the time that strategy {self.name!r} may take, nor a "
                "proof that there is none; choose strategy 'vertical', or loosen pins and memory "
                "limits"
            )
        return _priced(problem, found, np.concatenate([best[None], given]))


def _start(
    terms: Terms, goal: Goal, placement: Placement, population: NDArray[np.intp]
) -> NDArray[np.intp] | None:
    """The best of a population, which also bounds what there is to find; None if none of those
    fits the devices' memory."""
    if not len(population):
        return None
    costs = terms.problem.costs.evaluate(population)
    order = np.lexsort((costs.wire_bytes, goal.value(costs), costs.overrun_bytes))
    best: NDArray[np.intp] = population[order[0]]
    placement.hint(best.tolist())
    if costs.overrun_bytes[order[0]] > 0:
        return None
    most = int(goal.value(costs)[order[0]] / goal.unit * (1 + 1e-9)) + 1
    placement.model.add(goal.expression() <= most)
    if goal.loads:
        placement.narrow(goal.loads, most)
    return best


def _priced(
    problem: Problem, found: Sequence[tuple[Goal, float, bool]], population: NDArray[np.intp]
) -> Answer:
    """The best of a population by the cost model, which counts what the linear terms leave out; of
    equals, as the first row often is with the others, the first."""
    costs = problem.costs.evaluate(population)
    values = [goal.value(costs) for goal, _, _ in found]
    keys = [np.maximum(costs.overrun_bytes, 0), *(_rounded(value) for value in values)]
    row = int(np.lexsort(keys[::-1])[0])
    steps = tuple(
        GoalAnswer(goal, float(value[row]), bound, is_proved)
        for (goal, bound, is_proved), value in zip(found, values, strict=True)
    )
    return Answer(population[row], steps, bool(costs.overrun_bytes[row] <= 0))


def _rounded(values: Floats) -> Floats:
    """Values in billionths of the largest: sums that differ by less are equal."""
    largest = float(np.abs(values).max())
    return np.asarray(np.round(values / (largest * 1e-9))) if largest > 0 else values


_KIND = {True: "contiguous stages", False: "any layer on any device,"}


def _tightened(limit: int, excess: float) -> int:
    return limit - int(excess) - MARGIN_BYTES if excess > 0 else limit


def _watch(problem: Problem, goal: Goal, effort: SolverEffort, done: float, share: float) -> Watch:
    def watch(seconds: float, value: float | None, bound: float) -> None:
        part = done + share * min(1.0, seconds / effort.seconds)
        shown = "nothing yet" if value is None else goal.show(value * goal.unit)
        text = f"{goal.name}: {shown}, at least {goal.show(bound * goal.unit)}"
        problem.on_progress(SearchProgress(min(int(PROGRESS * part), PROGRESS - 1), PROGRESS, text))

    return watch
