"""The strategy `runs`: a few runs of layers on each device, for a short period and little memory.

A device that computes a run of early layers and a run of late ones has its share of the work and of
the weights with two phases. The search (`ga.runs.search`) examines assignments in which each device
has a few runs (`ga.runs.moves`) of genes (`ga.genes`), and finds a front of the period and the
fullest device's memory. The best candidates become plans, whose exact figures decide: for the
objectives `both` and `paper` by `ga.both`, for others by `ga.ranking`.

**Seeds** are contiguous cuts, and designs with two runs: the end of the network, which is heavy, is
dealt out to all devices in equal parts, and each gets as much of the rest as it has time for.

RunEffort is counted in steps, not seconds, so a seed determines the result on any machine.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ga.both import UNKNOWN, Columns, Shortest, columns, order
from ga.genes import Genes, genes
from ga.ranking import ranking
from ga.runs.moves import RunMoves
from ga.runs.search import Prices, RunEffort, allowances, search
from ga.runs.splitting import Grains, grains, is_coarse
from ga.seeds import cuts, shares
from partition.errors import PartitionError
from partition.objective import WITHIN_PERIOD
from partition.plan import Plan
from partition.planner import plan_solution
from partition.pricing.memory_budget import fair_memory
from partition.pricing.paper_equations import layer_beta_bytes
from partition.strategies.base import (
    Candidate,
    Problem,
    SearchProgress,
    Solution,
    without_choice,
)

DESIGNS = 24
"""The number of places at which the seeds with two runs begin the heavy end."""


class Runs:
    """See the module's docstring."""

    name = "runs"

    def __init__(
        self,
        effort: RunEffort | None = None,
        known: Shortest = UNKNOWN,
    ) -> None:
        """`known` are the shortest periods that other strategies have found."""
        self._effort = effort or RunEffort()
        self._known = known

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; if nothing fits, the search repeats without spare frames."""
        if not problem.has_choice:
            return without_choice(problem)
        found, plans = self._solve(problem)
        if not plans and problem.slack_frames:
            problem = replace(problem, slack_frames=0)
            found, plans = self._solve(problem)
        if not plans:
            return replace(
                found[0],
                explanation="no solution was found that fits every device's memory",
                optimal=False,
            )
        figures = [columns(problem, plan) for plan in plans]
        if problem.objective in WITHIN_PERIOD:
            best = order(problem, figures, self._known)[0]
        else:
            rank = ranking(problem)
            best = min(range(len(plans)), key=lambda number: rank(plans[number]))
        return replace(
            found[best],
            explanation=(
                f"annealing and NSGA-II over runs of layers, {len(plans)} candidates planned; "
                f"{len(plans[best].phases)} phases"
            ),
            optimal=False,
            front=_front(plans, figures),
        )

    def _solve(self, problem: Problem) -> tuple[list[Solution], list[Plan]]:
        """Return solutions that fit, and their plans, or one solution and no plan."""
        ways: list[Grains | None] = [None]
        if is_coarse(problem):
            ways = [*grains(problem)] or ways
        found: list[Solution] = []
        plans: list[Plan] = []
        for number, way in enumerate(ways):
            states = self._states(problem if way is None else way.problem, number, len(ways))
            for numbers in states[: self._effort.exact // len(ways)]:
                solution = _solution(problem, way, numbers)
                with contextlib.suppress(PartitionError):  # it does not fit
                    plan = plan_solution(problem, solution, self.name)
                    found.append(solution)
                    plans.append(plan)
            if not plans:
                refused = _solution(problem, way, states[0])
        total = len(ways) * self._effort.rounds
        problem.on_progress(SearchProgress(total, total, f"{len(plans)} plans"))
        return found or [refused], plans

    def _states(self, problem: Problem, way: int, ways: int) -> NDArray[np.intp]:
        """Return the assignments of layers that a search has found, the best first."""
        effort, devices = self._effort, len(problem.devices)
        grouped = genes(problem)

        def on_round(done: int, best: str) -> None:
            done, total = way * effort.rounds + done, ways * effort.rounds
            problem.on_progress(SearchProgress(done, total, best))

        found = search(
            np.random.default_rng(problem.seed),
            np.array([*_designs(problem, grouped), *cuts(problem, grouped)], dtype=np.int16),
            Prices(grouped.costs, problem.devices, _beta(problem, grouped)),
            RunMoves(grouped.pinned, shares(problem, grouped, _weights(problem, grouped))),
            effort,
            effort.steps(len(grouped.network.tensors) * ways, devices),
            allowances(problem.within * (1 - problem.within_margin)),
            self._known.divided_s,
            grouped.pinned,
            devices,
            on_round,
        )
        return grouped.layers(found.states)


def _solution(problem: Problem, way: Grains | None, numbers: NDArray[np.intp]) -> Solution:
    if way is None:
        return Solution(problem.assignment(numbers), "")
    split = way.merged(numbers)
    network = split.problem.network if split.rewrites else None
    return Solution(split.problem.assignment(split.numbers), "", split.rewrites, network)


def _front(plans: list[Plan], figures: list[Columns]) -> tuple[Candidate, ...]:
    """Return the plans that no other betters in both columns, by ascending period."""
    by_period = sorted(
        range(len(plans)),
        key=lambda n: (figures[n].period_s, figures[n].memory, figures[n].tensors),
    )
    front: list[Candidate] = []
    least = (math.inf, math.inf)
    for number in by_period:
        plan, own = plans[number], figures[number]
        if (own.memory, own.tensors) < least:
            least = (own.memory, own.tensors)
            fullest = max(each.total_bytes for each in plan.memory.values())
            front.append(
                Candidate(
                    plan.assignment, plan.period_s, fullest, plan.bytes_per_frame, plan.rewrites
                )
            )
    return tuple(front)


def _beta(problem: Problem, grouped: Genes) -> NDArray[np.float64] | None:
    """Return each gene's bytes by Eq. 2 [genes] for the objective `paper`; None for others."""
    if problem.objective != "paper":
        return None
    return grouped.sums(layer_beta_bytes(problem.network))


def _weights(problem: Problem, grouped: Genes) -> NDArray[np.float64]:
    """Return each gene's bytes of weights, or by Eq. 2 for the objective `paper`: [genes]."""
    beta = _beta(problem, grouped)
    return grouped.weight_bytes if beta is None else beta


def _designs(problem: Problem, grouped: Genes) -> Iterable[NDArray[np.int16]]:
    """Return seeds in which the genes from some place on are dealt out by their weights, and those
    before it by the time that devices have left."""
    devices = len(problem.devices)
    seconds, pinned = grouped.costs.layer_s, grouped.pinned
    weights = _weights(problem, grouped)
    weights = weights + 1e-9 * weights.sum() + 1e-9
    rates = 1 / np.maximum(seconds.sum(axis=0), 1e-300)
    room = fair_memory(problem.devices)
    for begin in np.unique(np.linspace(0, grouped.count - 1, DESIGNS).astype(int)):
        late = _dealt(weights[begin:], room)
        busy = np.bincount(late, seconds[begin:].mean(axis=1), minlength=devices)
        fair = seconds.mean(axis=1).sum() * rates / rates.sum()
        left = np.maximum(fair - busy, 0.0)
        early = _dealt(seconds[:begin].mean(axis=1), left if left.any() else rates)
        numbers = np.concatenate([early, late]).astype(np.int16)
        yield np.where(pinned >= 0, pinned, numbers).astype(np.int16)


def _dealt(sizes: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return a device for each of `sizes` [genes], in runs as large as `shares` [devices]."""
    ends = np.cumsum(shares) / shares.sum()
    middles = (np.cumsum(sizes) - sizes / 2) / max(sizes.sum(), 1e-300)
    return np.asarray(np.minimum(np.searchsorted(ends, middles), len(shares) - 1))
