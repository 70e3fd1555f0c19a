"""The default strategy: it tries several strategies and takes the best plan for the objective.

The candidates are contiguous cuts and the vertical search. For `both` and `period` whole copies are
candidates too, and for `period`, on several machines, pipelines side by side. Where whole layers
leave a device more than its share of work or weights, the hybrid strategy is tried as well. Last,
for the objectives `both` and `paper`, comes the search over runs, which knows the shortest period
that the others have found. Every candidate becomes a plan, because only plans can be compared
whatever they rewrite: for `both` and `paper` by `ga.both`, for other objectives by `ga.ranking`.
Where it is known how plans are run, their periods are those of simulated runs.

One device alone is planned too. It is chosen where no candidate uses several devices, where its
objective is better than the best candidate's by more than `ALONE_MARGIN`, or where other devices
would hardly help (`LEAST_GAIN`). Where it is better by less, the explanation says so.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ga.both import Shortest, columns, divides, explained, order, shortest
from ga.hybrid.strategy import Hybrid
from ga.objectives import Preference, negligible_bytes
from ga.ranking import preference_for, ranking, unloaded_latency_s
from ga.replicated import Replicated
from ga.runs.search import RunEffort
from ga.runs.strategy import Runs
from ga.vertical import Vertical
from partition.alone import beside_idle_bytes, saved_percent, solutions_alone
from partition.devices import machines
from partition.errors import PartitionError
from partition.objective import PERIOD_FIRST, WITHIN_PERIOD
from partition.plan import Plan
from partition.planner import foreseen_plan, plan_solution
from partition.prediction.timing import energy_j
from partition.pricing.memory_budget import fair_memory
from partition.strategies.base import (
    PART_STEPS,
    Problem,
    SearchProgress,
    Solution,
    Strategy,
    part_of_search,
)
from partition.strategies.batch_split import BatchSplit
from partition.strategies.contiguous.segm import SequentialBalanced
from partition.strategies.contiguous.sequential import Sequential

ALONE_MARGIN = 0.02
"""The relative margin by which one device's period must be shorter than that of all devices
together for one device to be chosen: distributing a network saves memory, and predictions are not
better than that. For other objectives there is no margin."""

LEAST_GAIN, LEAST_SAVED_PERCENT = 0.05, 10.0
"""For the objective `both`, other devices take part only if they make the period shorter than that
of one device alone by the former part, or save the latter of its memory. A device a hundred times
slower promises 1.4 %, and every delay of it costs more."""

HURRIED = "auto, quickly"
"""The name of the strategy without its long searches (`Auto.in_a_hurry`)."""

UNEVEN = 1.1
"""The multiple of the fair share of work or weights above which layers are split."""

SHORT = RunEffort(work=24e6, rounds=3, chains=120, exact=24)
"""The effort of the search over runs in a hurry. Its periods and memory for ResNet50 on two, four
and ten equal boards are at most 4 % above those of the usual effort, which takes six times as
long."""


@dataclass(frozen=True)
class _Candidate:
    """A strategy's choice.

    `shortest_s` is the shortest period that it found, if its choice depends on that.
    """

    name: str
    solution: Solution
    plan: Plan
    shortest_s: float = math.inf


RunSearch = Callable[[Shortest], Strategy]
"""Returns the search over runs, given the shortest periods that other strategies have found."""

VerticalSearch = Callable[[Problem, Preference], Strategy]
"""Returns the vertical search for a problem, with this preference."""


_HYBRID = Hybrid()


class Auto:
    """See the module's docstring."""

    name = "auto"

    def __init__(
        self,
        candidates: Sequence[Strategy] | None = None,
        splitting: Strategy | None = _HYBRID,
        vertical: VerticalSearch = lambda _, preference: Vertical(preference),
        runs: RunSearch | None = None,
    ) -> None:
        """Set the strategies to try.

        `candidates` replace the default ones, of which `vertical` makes one. `splitting` is tried
        where they leave a device more than its share (None: never), `runs` for the objectives
        `both` and `paper`.
        """
        self._given = None if candidates is None else tuple(candidates)
        self._splitting = splitting
        self._vertical = vertical
        self._runs = runs or (_runs if candidates is None else None)

    @classmethod
    def in_a_hurry(cls) -> Auto:
        """Return the strategy with short searches only: it takes one to two seconds."""
        quick: tuple[Strategy, ...] = (Sequential(), SequentialBalanced(), BatchSplit())
        hurried = cls(quick, splitting=None, runs=lambda known: Runs(SHORT, known))
        hurried.name = HURRIED
        return hurried

    def candidates(self, problem: Problem) -> tuple[Strategy, ...]:
        """Return the strategies to try on a problem; those that keep layers whole come first."""
        usual = (
            Sequential(),
            self._vertical(problem, preference_for(problem)),
            BatchSplit(),
            Replicated(fewest=2),
        )
        every = usual if self._given is None else self._given
        return tuple(each for each in every if _applies(each, problem))

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; raises `PartitionError` if no candidate gives a plan that fits."""
        alone = _alone(problem)
        if len(problem.devices) == 1 and alone is not None:
            problem.on_progress(SearchProgress(1, 1, "nothing to choose"))
            return alone.solution
        found, refusals = self._solved(problem)
        if not found:
            if alone is None:
                raise refusals[0]
            explanation = f"one device alone: nothing else fits ({refusals[0]})"
            return replace(alone.solution, explanation=explanation)
        ranked = _ranked(problem, found)
        if alone is not None:
            ranked = [candidate for candidate in ranked if _devices(candidate.plan) > 1]
            if not ranked:
                tried = ", ".join(candidate.name for candidate in found)
                explanation = f"one device alone is better: {tried} found no use for another one"
                return replace(alone.solution, explanation=explanation)
        best = ranked[0]
        others = ", ".join(candidate.name for candidate in found if candidate is not best)
        compared = f" (compared with {others})" if others else ""
        explanation = f"{best.name}{compared}: {best.solution.explanation}"
        if problem.objective in WITHIN_PERIOD:
            shortest_s = min(candidate.plan.period_s for candidate in found)
            explanation += f"; {explained(problem, best.plan, shortest_s)}"
        chosen = replace(best.solution, strategy=best.name)
        beside_it = _others([*ranked[1:], *([] if alone is None else [alone])])
        if alone is None:
            return replace(chosen, explanation=explanation, others=beside_it)
        value, without = _value(problem, best.plan), _value(problem, alone.plan)
        device = alone.plan.phases[0].device
        beside = f"{_shown(problem, without)} instead of {_shown(problem, value)}"
        margin = ALONE_MARGIN if problem.objective in PERIOD_FIRST else 0.0
        if without * (1 + margin) < value:
            better = f"one device alone, {device}, is better: {beside} with {best.name}"
            return replace(alone.solution, explanation=better, others=_others(ranked))
        saved = saved_percent(beside_idle_bytes(best.plan), beside_idle_bytes(alone.plan))
        if (
            problem.objective == "both"
            and without < value * (1 + LEAST_GAIN)
            and saved < LEAST_SAVED_PERCENT
        ):
            enough = (
                f"one device alone, {device}, does: {beside} with {best.name}, which would save "
                f"{saved:.0f}% of its memory"
            )
            return replace(alone.solution, explanation=enough, others=_others(ranked))
        if without <= value:
            explanation += f"; one device alone, {device}, would do: {beside}, for more memory"
        return replace(chosen, explanation=explanation, others=beside_it)

    def _solved(self, problem: Problem) -> tuple[list[_Candidate], list[PartitionError]]:
        found: list[_Candidate] = []
        refusals: list[PartitionError] = []
        strategies = self.candidates(problem)
        total = len(strategies) + 2
        splitting = () if self._splitting is None else (self._splitting,)
        for number, strategy in enumerate([*strategies, *splitting]):
            if strategy is self._splitting and not _is_uneven(problem, found):
                continue
            try:
                found.append(_candidate(problem, strategy, number, total))
            except PartitionError as error:  # it cannot respect pins or memory
                refusals.append(error)
        if self._runs is not None and problem.objective in WITHIN_PERIOD:
            known = shortest(columns(problem, each.plan) for each in found)
            try:
                chosen = _candidate(problem, self._runs(known), total - 1, total)
            except PartitionError as error:
                refusals.append(error)
            else:
                found.append(replace(chosen, shortest_s=_shortest_s(problem, chosen)))
        problem.on_progress(SearchProgress(total * PART_STEPS, total * PART_STEPS, ""))
        return found, refusals


def _runs(known: Shortest) -> Strategy:
    return Runs(known=known)


def _ranked(problem: Problem, found: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the candidates, the best by the problem's objective first.

    For `both` and `paper`, the shortest period is that of the candidates and of the whole front of
    the search over runs, because the choice of that search depends on it. Other solutions that a
    strategy found and did not choose are not candidates, so their periods do not count.
    """
    if problem.objective not in WITHIN_PERIOD:
        rank = ranking(problem)
        return sorted(found, key=lambda candidate: rank(candidate.plan))
    figures = [columns(problem, candidate.plan) for candidate in found]
    known = Shortest(min((each.shortest_s for each in found), default=math.inf))
    return [found[number] for number in order(problem, figures, known)]


def _shortest_s(problem: Problem, runs: _Candidate) -> float:
    """Return the shortest period on the front of the search over runs if it divides the network.

    The search prices by closed forms, so its periods are lengthened as that of its choice is when
    its run is foreseen.
    """
    if not divides(runs.plan):
        return math.inf
    priced_s = plan_solution(problem, runs.solution, runs.name).period_s
    shortest_s = min((each.period_s for each in runs.solution.front), default=math.inf)
    return shortest_s * (runs.plan.period_s / priced_s if priced_s else 1.0)


def _devices(plan: Plan) -> int:
    """Return the number of devices that take part."""
    return len({phase.device for phase in plan.phases})


def _others(candidates: Sequence[_Candidate]) -> tuple[Solution, ...]:
    return tuple(
        replace(
            each.solution,
            explanation=f"{each.name}: {each.solution.explanation}",
            strategy=each.name,
        )
        for each in candidates
    )


def _candidate(problem: Problem, strategy: Strategy, number: int, total: int) -> _Candidate:
    solution = strategy.solve(part_of_search(problem, number, total, strategy.name))
    return _Candidate(strategy.name, solution, foreseen_plan(problem, solution, strategy.name))


def _applies(strategy: Strategy, problem: Problem) -> bool:
    """Return whether a strategy can give a plan that may be better than the others."""
    if isinstance(strategy, BatchSplit | Replicated) and (
        problem.objective not in ("both", "period")  # `paper` divides a network
        or problem.model is None
        or problem.pins
        or problem.network.state
    ):
        return False
    if isinstance(strategy, Replicated):
        if problem.objective == "both":  # copies give the shortest period, runs the least memory
            return False
        return len(machines(problem.devices)) > 1 and bool(strategy.counts(problem))
    return True


def _is_uneven(problem: Problem, found: Sequence[_Candidate]) -> bool:
    """Return whether whole layers leave some device more than its share, or nothing fits at all.

    A share is one of the work, in every plan, or of the weights: one layer may exceed it.
    """
    if problem.model is None or problem.objective in ("latency", "energy"):
        return False
    whole = [each.solution.assignment for each in found if not each.plan.rewrites]
    if not whole:
        return True
    work = problem.costs.layer_s
    fair_s = 1 / (1 / work.sum(axis=0)).sum()
    fair = fair_memory(problem.devices) / len(problem.devices)
    network = problem.network
    weights = sum(tensor.bytes for tensor in network.weights.values())
    share = max(network.layer_weight_bytes) / fair.max() / (weights + negligible_bytes(network))

    priced = problem.costs.evaluate(np.array([problem.numbers(each) for each in whole]))
    return bool(max(share, priced.compute_s.max(axis=1).min() / fair_s) > UNEVEN)


def _alone(problem: Problem) -> _Candidate | None:
    """Return the plan with everything on the best single device, if any device can hold it."""
    plans = []
    for solution in solutions_alone(problem):
        with contextlib.suppress(PartitionError):  # its memory does not suffice
            plan = foreseen_plan(problem, solution, Auto.name)
            plans.append(_Candidate("one device alone", solution, plan))
    return min(plans, key=lambda candidate: _value(problem, candidate.plan), default=None)


def _value(problem: Problem, plan: Plan) -> float:
    """Return the objective's value of a plan: seconds, joules, or the fullest device's bytes."""
    match problem.objective:
        case "both" | "paper" | "period":
            return plan.period_s
        case "latency":
            return unloaded_latency_s(plan)
        case "energy":
            return energy_j(plan)
    return float(max(memory.total_bytes for memory in plan.memory.values()))


def _shown(problem: Problem, value: float) -> str:
    match problem.objective:
        case "energy":
            return f"{value:.3g} J per frame"
        case "memory":
            return f"{value / 1e6:.1f} MB"
    per = "per frame" if problem.objective in PERIOD_FIRST else "from a frame to its result"
    return f"{value * 1e3:.1f} ms {per}"
