"""The plans among which a user can trade speed for memory: the front of a search.

A strategy prices what it keeps of its search by its own estimates. Here each of these candidates
becomes a plan, whose period and memory are exact functions of it (`partition.planner.make_plan`),
and the plans that another one dominates are dropped. A plan dominates another one if its period is
no longer and its fullest device holds no more. The points that remain are named by their rank,
`p01` being the fastest, so the same search gives the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from partition.alone import ONE_DEVICE, fullest_bytes, solutions_alone
from partition.errors import PartitionError
from partition.plan import Plan
from partition.planner import plan_solution
from partition.strategies.base import Problem, Solution

STEP = 0.01
"""A point whose fullest device holds less than one per cent less than that of a faster point is
left out."""


@dataclass(frozen=True, slots=True)
class PricedPlan:
    """A plan, and the name of the strategy that found it."""

    strategy: str
    plan: Plan

    @property
    def fullest_bytes(self) -> int:
        """The predicted memory of the device that holds most."""
        return fullest_bytes(self.plan)


def candidates(problem: Problem, strategy: str, solution: Solution) -> list[tuple[str, Solution]]:
    """Return all different solutions in a strategy's answer, each with the strategy that found it.

    These are everything on one device, the solution itself, its front, what it was compared with,
    and the fronts of those.
    """
    alone = ((ONE_DEVICE, each) for each in solutions_alone(problem))
    found = [*alone, *_with_fronts(strategy, solution)]
    distinct: dict[object, tuple[str, Solution]] = {}
    for name, each in found:
        key = (tuple(sorted(each.assignment.items())), each.rewrites)
        distinct.setdefault(key, (name, each))
    return list(distinct.values())


def _with_fronts(strategy: str, solution: Solution) -> Iterator[tuple[str, Solution]]:
    name = solution.strategy or strategy
    yield name, solution
    for candidate in solution.front:
        yield name, Solution(candidate.assignment, f"a point of the front that {name} found")
    for other in solution.others:
        yield from _with_fronts(strategy, other)


def price(
    problem: Problem,
    found: Sequence[tuple[str, Solution]],
    on_progress: Callable[[int, int], None],
) -> list[PricedPlan]:
    """Return the plans of those solutions that fit the devices and can be proved, in order.

    Raises `PartitionError` for the first one if there is none.
    """
    priced, refusals = [], []
    for number, (name, solution) in enumerate(found, start=1):
        try:
            plan = plan_solution(problem, solution, name)
        except PartitionError as error:
            refusals.append(error)
        else:
            priced.append(PricedPlan(name, plan))
        on_progress(number, len(found))
    if not priced:
        raise refusals[0]
    return priced


def undominated(priced: Sequence[PricedPlan]) -> list[PricedPlan]:
    """Return the plans that no other one dominates, the fastest first; see `STEP`.

    Of plans with equal figures the first one stays.
    """
    kept: list[PricedPlan] = []
    for each in sorted(priced, key=lambda each: (each.plan.period_s, each.fullest_bytes)):
        if not kept or each.fullest_bytes < (1 - STEP) * kept[-1].fullest_bytes:
            kept.append(each)
    return kept


def point_name(number: int) -> str:
    """Return the name of the point with this rank.

    >>> point_name(1)
    'p01'
    """
    return f"p{number:02}"
