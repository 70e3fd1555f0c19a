"""The optimal partition, or one with a proved optimality gap, by constraint programming.

The goals of the problem's objective (`partition.strategies.exact.search`) are minimised one after
the other, each without giving up any of the last (the incremental solving of Yin et al., §IV-B).
OR-Tools CP-SAT proves each minimum, or gives a bound when its time is over. Quick heuristics give
it assignments to start from: a good start prunes the search, and it is the result if time runs out
before a better one is found.

The model counts the linear terms of the cost model (`partition.strategies.exact.loads`). It never
counts too much, so its bounds hold for the cost model too. The cost model prices the solution, and
the reported gap is the distance of that price from the bound. Memory limits are constraints. Where
a solution exceeds one by costs that the linear terms leave out, the limit is tightened by as much
and the search repeated, while the bounds remain those of the original limits.

Source: J. Yin, Z. Zhang, C. Yu, "Exact memory- and communication-aware scheduling of DNNs on
pipelined edge TPUs", IEEE/ACM Symposium on Edge Computing, 2022.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partition.errors import PartitionError
from partition.pricing.traffic import Floats, frames_between_devices
from partition.strategies.balancing import balanced_split, longest_first, rebalanced
from partition.strategies.base import Problem, SearchProgress, Solution, Strategy, ignore_progress
from partition.strategies.contiguous.sequential import Sequential
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Placement, Shape
from partition.strategies.exact.refusals import check, refusal
from partition.strategies.exact.search import (
    Goal,
    PublishedOrder,
    SolverEffort,
    Watch,
    goals,
    minimise,
    published_goals,
)
from partition.strategies.exact.terms import Terms, terms_of

ROUNDING = 1e-4
"""A gap below this comes from rounding to whole ticks, and counts as none."""


@dataclass(frozen=True, slots=True)
class GoalAnswer:
    """The outcome of one goal: the solution's value by the cost model, and a lower bound."""

    goal: Goal
    value: float
    bound: float
    is_proved: bool

    @property
    def gap(self) -> float:
        """The largest fraction by which a better solution could beat the value."""
        return max(0.0, 1 - self.bound / self.value) if self.value > 0 else 0.0

    @property
    def is_optimal(self) -> bool:
        """Whether no solution that is equally good by the earlier goals is better by this one."""
        return self.is_proved and self.gap <= ROUNDING

    @property
    def sentence(self) -> str:
        """For example `period 12.346 ms (optimal)`, or with the gap instead."""
        shown = f"{self.goal.name} {self.goal.show(self.value)}"
        if self.is_optimal:
            return f"{shown} (optimal)"
        return f"{shown} (at least {self.goal.show(self.bound)}, gap {self.gap:.2%})"


@dataclass(frozen=True)
class Answer:
    """A device number per layer [layers], the outcome of each goal, and whether the assignment fits
    the devices' memory by the cost model."""

    numbers: NDArray[np.intp]
    steps: tuple[GoalAnswer, ...]
    fits: bool

    @property
    def is_optimal(self) -> bool:
        """Whether all goals that count were proved optimal."""
        return all(step.is_optimal for step in self.steps if step.goal.counts)

    @property
    def gap(self) -> float:
        """The gap of the first goal that was not proved optimal; 0 if all were."""
        gaps = (step.gap for step in self.steps if step.goal.counts and not step.is_optimal)
        return next(gaps, 0.0)

    @property
    def sentence(self) -> str:
        """All goals and their outcomes."""
        text = ", then ".join(step.sentence for step in self.steps)
        return text if self.fits else f"{text}; no solution was found that fits every memory"

    def bounded_by(self, relaxed: Answer) -> Answer:
        """Return this answer, found under tighter limits, with the bounds of looser limits."""
        steps = tuple(
            replace(
                step,
                bound=min(step.bound, other.bound),
                is_proved=step.is_proved and other.is_proved,
            )
            for step, other in zip(self.steps, relaxed.steps, strict=True)
        )
        return replace(self, steps=steps)


def starts(terms: Terms, shape: Shape, others: Sequence[Strategy]) -> NDArray[np.intp]:
    """Return assignments [any number, layers] that respect pins and `shape`.

    The strategies `others` contribute their solutions.
    """
    problem = terms.problem
    devices = range(len(problem.devices))
    found = [np.full(terms.layers, device, dtype=np.intp) for device in devices]
    if shape.contiguous:
        found.append(_even_runs(terms.own_bytes, len(devices)))
    else:
        work = (problem.costs.layer_s.mean(axis=1) / terms.tick_s).astype(np.int64).tolist()
        found += [_longest_first(problem, work), _longest_first(problem, terms.own_bytes)]
        units = [size // terms.weight_unit for size in terms.own_bytes]
        found.append(rebalanced(units, terms.rooms, found[-1], problem.pinned < 0))
    for strategy in (Sequential(), *others):
        try:
            solution = strategy.solve(replace(problem, on_progress=ignore_progress))
        except PartitionError:  # such as pins that it cannot respect; a start is optional
            continue
        if solution.network is None:
            found.append(problem.numbers(solution.assignment))
    possible = [numbers for numbers in found if is_possible(terms, shape, numbers)]
    return np.array(possible, dtype=np.intp).reshape(len(possible), terms.layers)


def is_possible(terms: Terms, shape: Shape, numbers: NDArray[np.intp]) -> bool:
    """Return whether an assignment respects the pins and is of this shape."""
    pinned = terms.problem.pinned
    if (numbers != pinned)[pinned >= 0].any():
        return False
    if shape.siblings and any(len(set(numbers[list(own)])) > 1 for own in terms.siblings):
        return False
    if not shape.contiguous:
        return True
    before: dict[int, set[int]] = {int(device): set() for device in numbers}
    for source, reader in terms.edges:
        if numbers[source] != numbers[reader]:
            before[int(numbers[reader])].add(int(numbers[source]))
    if not terms.are_apart and len(terms.kinds) > 1:
        return all(max(earlier, default=-1) < device for device, earlier in before.items())
    while before:
        first = next((device for device, earlier in before.items() if not earlier), None)
        if first is None:
            return False
        del before[first]
        for earlier in before.values():
            earlier.discard(first)
    return True


def _even_runs(sizes: Sequence[int], runs: int) -> NDArray[np.intp]:
    """Return runs of the topological order whose largest sum of `sizes` is least: [layers]."""
    _, cuts = balanced_split(sizes, runs)
    return np.asarray(np.searchsorted(cuts, np.arange(len(sizes)), side="right"), dtype=np.intp)


def _longest_first(problem: Problem, sizes: Sequence[int]) -> NDArray[np.intp]:
    """Assign the largest layers first, each to the device with the least load for its speed."""
    seconds = problem.costs.layer_s.sum(axis=0)
    slowness = seconds / seconds.min() if seconds.min() > 0 else np.ones(len(seconds))
    each = np.array(sizes, dtype=np.float64)[:, None] * slowness
    (numbers,) = longest_first(np.random.default_rng(0), 1, each, problem.pinned)
    return np.asarray(numbers, dtype=np.intp)


REPEATS = 4
"""The most times that limits are tightened before an overfull solution is returned as it is."""

MARGIN_BYTES = 1 << 16
"""The number of bytes beyond the excess by which a limit is tightened."""

PROGRESS = 1000
"""The number of steps of progress that is reported."""


class Exact:
    """See the module's docstring; `others` contribute assignments to start from.

    With `published`, the goals are those of Yin et al. in this order, whatever the objective.
    """

    def __init__(
        self,
        name: str = "exact",
        shape: Shape | None = None,
        effort: SolverEffort | None = None,
        others: Sequence[Strategy] = (),
        published: PublishedOrder | None = None,
    ) -> None:
        self.name = name
        self._published = published
        self._shape = shape or Shape()
        self._effort = effort or SolverEffort()
        self._others = tuple(others)

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`.

        Raises `PartitionError` if there is no such partition, and names the constraint that
        excludes it, or if none was found in time.
        """
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
        follows = self._published is None or problem.objective == "memory"
        ignored = "" if follows else f" ({problem.objective} plays no part)"
        return Solution(
            problem.assignment(answer.numbers),
            f"{_KIND[self._shape.contiguous]} by constraint programming{ignored}: "
            f"{answer.sentence}",
            optimal=answer.is_optimal,
            gap=answer.gap,
        )

    def _within_limits(self, problem: Problem) -> Answer | None:
        """Return the best solution that fits the devices' memory by the cost model, or else the one
        found that exceeds it least; None if there is none."""
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
        """Return the best by the linear terms; None if `limits` provably exclude every solution."""
        terms = terms_of(problem)
        placement = Placement(terms, self._shape)
        loads = LoadVariables(placement)
        loads.keep_within(limits, frames_between_devices(problem.slack_frames))
        if self._published is None:
            ahead = goals(terms, loads)
        else:
            ahead = published_goals(terms, loads, self._published)
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
            bound = goal.lower_bound(outcome.bound)
            found.append((goal, bound, outcome.status == "proved"))
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
    """Return the best of a population, which also bounds the search; None if none of them fits the
    devices' memory."""
    if not len(population):
        return None
    costs = terms.problem.costs.evaluate(population)
    value = goal.value(costs, population)
    order = np.lexsort((costs.wire_bytes, value, costs.overrun_bytes))
    best: NDArray[np.intp] = population[order[0]]
    placement.hint(best.tolist())
    if costs.overrun_bytes[order[0]] > 0:
        return None
    most = int(value[order[0]] / goal.unit * (1 + 1e-9)) + 1
    placement.model.add(goal.expression() <= most)
    if goal.loads:
        placement.narrow(goal.loads, most)
    return best


def _priced(
    problem: Problem, found: Sequence[tuple[Goal, float, bool]], population: NDArray[np.intp]
) -> Answer:
    """Return the best of a population by the cost model, which also counts the costs that the
    linear terms leave out. Of equals, the first wins."""
    costs = problem.costs.evaluate(population)
    values = [goal.value(costs, population) for goal, _, _ in found]
    keys = [np.maximum(costs.overrun_bytes, 0), *(_rounded(value) for value in values)]
    row = int(np.lexsort(keys[::-1])[0])
    steps = tuple(
        GoalAnswer(goal, float(value[row]), bound, is_proved)
        for (goal, bound, is_proved), value in zip(found, values, strict=True)
    )
    return Answer(population[row], steps, bool(costs.overrun_bytes[row] <= 0))


def _rounded(values: Floats) -> Floats:
    """Round values to billionths of the largest, so that sums that differ by less are equal."""
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
