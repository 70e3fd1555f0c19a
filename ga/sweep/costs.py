"""Prices the solution of a search relative to that with the usual parameters.

Costs of several networks and seeds have different scales, so a study compares ratios: the cost
with some parameters divided by the cost that the usual parameters find in the same search. A ratio
of 0.97 is 3 % better.

A solution is priced in *figures*, logarithms of costs. One figure is a score that the strategy
minimises. Two are the period and the memory of the plan. For the objectives `both` and `paper`,
which allow a period up to `Problem.within` longer than the shortest, they become one ratio, as in
the search over runs (`ga.runs.search`): the ratio of memory, where a period beyond the tolerance of
the other one costs `STEEPNESS` times as much memory, and a shorter one is worth a little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ga.both import columns
from ga.ranking import ranking
from ga.runs.search import STEEPNESS, TIME
from partition.objective import WITHIN_PERIOD
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution

Figures = tuple[float, ...]
"""Logarithms of costs."""

_MOST = 700.0
"""Exponentials of larger numbers overflow."""


def period_and_memory(problem: Problem, solution: Solution) -> Figures:
    """Return the figures of the plan's period and of its memory.

    Memory is the weights, activations and channels of the fullest device, as a share of its limit
    or in bytes (`ga.both.Columns.tensors`). Raises `PartitionError` for a plan that does not fit.
    """
    own = columns(problem, plan_solution(problem, solution, ""))
    return logarithm(own.period_s), logarithm(own.tensors)


def plan_figures(problem: Problem, solution: Solution) -> Figures:
    """Return the figures of a solution as a plan: its rank, or two (`WITHIN_PERIOD`).

    Raises `PartitionError` for a plan that does not fit.
    """
    if problem.objective in WITHIN_PERIOD:
        return period_and_memory(problem, solution)
    plan = plan_solution(problem, solution, "")
    return (ranking(problem)(plan),)


def ratio(figure: float, usual: float) -> float:
    """Return the ratio of two costs from their logarithms.

    >>> round(ratio(math.log(3), math.log(4)), 3)
    0.75
    """
    return 1.0 if figure == usual else _exponential(figure - usual)


def relative(problem: Problem, figures: Sequence[float], usual: Sequence[float]) -> float:
    """Return the cost of `figures` relative to `usual`: below 1 is better."""
    if len(figures) == 1 or tuple(figures) == tuple(usual):
        return ratio(figures[0], usual[0])
    longer, more = (own - other for own, other in zip(figures, usual, strict=True))
    tolerance = math.log1p(problem.within)
    late = max(0.0, longer - tolerance) - max(0.0, -longer - tolerance)
    return _exponential(more + STEEPNESS * late + TIME * longer)


def logarithm(cost: float) -> float:
    """Return the logarithm of a cost; that of nothing is −∞."""
    return math.log(cost) if cost > 0 else -math.inf


def _exponential(difference: float) -> float:
    return math.exp(min(max(difference, -_MOST), _MOST))
