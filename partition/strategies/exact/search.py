"""The goals of the exact strategy, and the minimisation of each with OR-Tools CP-SAT.

A minimisation returns a solution, a bound and a status. It runs in a separate thread while the
caller's thread waits, so that Ctrl-C ends it and progress is reported while it runs. The goals are
minimised in lexicographic order:

- **memory**, as in Yin et al.: ① the largest weights of any stage, relative to their room if
  devices differ (their Eq. 7), ② weights beyond the devices' caches (Eq. 8), ③ bytes between
  devices (Eq. 9 and 10).
- **period**: of the busiest device, link or machine; then bytes.
- **latency**, of a frame that finds the pipeline empty: the time of all devices for it, and the
  transfers; then bytes.
- **energy**: joules per frame, waiting included; then bytes.

`published_goals` are those of Yin et al. to the letter, whatever the objective: ③ is the largest
communication of one stage (§IV-B), in which every edge counts (Eq. 9), and the order is a choice.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from partition.objective import PERIOD_FIRST
from partition.pricing.cost import Costs
from partition.pricing.traffic import Assignments, Floats
from partition.strategies.bounds import least_value
from partition.strategies.chosen import unloaded_latency_s
from partition.strategies.exact.loads import LoadVariables
from partition.strategies.exact.placement import Expression, Placement
from partition.strategies.exact.terms import SHARE_UNIT, Terms


@dataclass(frozen=True)
class Goal:
    """A quantity to minimise.

    `expression` × `unit` is the quantity; `value` computes it from prices and device
    numbers [individuals];
    `show` formats it for people. `loads` [layers] is the least that every layer adds to its stage's
    part of the expression; it is empty if the expression is not a maximum over stages. No solution
    has less than `least`, in units of the quantity. The expression exceeds the quantity by less
    than `rounded_up` units. A goal without `counts` only breaks ties.
    """

    name: str
    expression: Callable[[], Expression]
    unit: float
    value: Callable[[Costs, Assignments], Floats]
    show: Callable[[float], str]
    loads: Sequence[int] = ()
    counts: bool = True
    least: float = 0.0
    rounded_up: int = 0

    def lower_bound(self, bound: float) -> float:
        """Return what the quantity cannot be below, for a lower bound of the expression."""
        return max((bound - self.rounded_up) * self.unit, self.least)


def goals(terms: Terms, loads: LoadVariables) -> tuple[Goal, ...]:
    """Return the goals of the problem's objective, the most important first."""
    problem = terms.problem
    traffic = Goal(
        "bytes between devices",
        loads.traffic.total,
        terms.traffic_unit,
        lambda costs, _: costs.wire_bytes,
        megabytes,
        counts=problem.objective == "memory",
    )
    if problem.objective == "memory":
        return (*_memory(terms, loads), traffic)
    if problem.objective in PERIOD_FIRST:
        seconds = problem.costs.layer_s.min(axis=1)
        each = [terms.ticks(float(layer_s)) for layer_s in seconds]
        first = Goal(
            "period",
            lambda: loads.period,
            terms.tick_s,
            lambda costs, _: costs.period_s,
            milliseconds,
            each,
            least=least_value(problem),
        )
    elif problem.objective == "latency":
        first = Goal(
            "latency of a lone frame",
            lambda: loads.latency,
            terms.tick_s,
            lambda costs, _: unloaded_latency_s(problem, costs),
            milliseconds,
            least=least_value(problem),
        )
    else:
        first = Goal(
            "energy per frame",
            lambda: loads.energy,
            terms.tick_s * terms.watts,
            lambda costs, _: costs.energy_j,
            lambda joules: f"{joules:.3f} J",
            least=least_value(problem),
        )
    return first, traffic


def _memory(terms: Terms, loads: LoadVariables) -> tuple[Goal, ...]:
    devices = terms.problem.devices
    room = np.array(terms.rooms) / SHARE_UNIT
    unlike = len(set(terms.rooms)) > 1
    share = Goal(
        "largest weights" + (" relative to their room" if unlike else ""),
        lambda: loads.largest_share,
        terms.weight_unit / terms.share_unit,
        lambda costs, _: (costs.weight_bytes / room).max(axis=1),
        megabytes,
        terms.least_shares,
        least=(terms.share_range[0] - int(unlike)) * terms.weight_unit / terms.share_unit,
        rounded_up=int(unlike),
    )
    if all(device.cache_bytes is None for device in devices):
        return (share,)
    uncached = Goal(
        "weights beyond the caches",
        lambda: sum(loads.uncached),
        terms.weight_unit,
        lambda costs, _: costs.cache_overrun_bytes.sum(axis=1),
        megabytes,
    )
    return share, uncached


def megabytes(size: float) -> str:
    """Format bytes as `12.346 MB`."""
    return f"{size / 1e6:.3f} MB"


def milliseconds(seconds: float) -> str:
    """Format seconds as `12.346 ms`."""
    return f"{seconds * 1e3:.3f} ms"


PublishedOrder = Literal["13", "123", "213"]
"""The orders of goals of Yin et al. (§V-B): ① the largest weights of a stage, ② the weights beyond
caches, ③ the largest communication of a stage."""


def published_goals(terms: Terms, loads: LoadVariables, order: PublishedOrder) -> tuple[Goal, ...]:
    """Return the goals of Yin et al. in one of their orders; see the module's docstring."""
    share, *uncached = _memory(terms, loads)
    communication = Goal(
        "largest communication of a stage",
        lambda: loads.traffic.largest,
        terms.traffic_unit,
        lambda _, population: terms.largest_communication(population),
        megabytes,
    )
    by_digit = {"1": [share], "2": uncached, "3": [communication]}
    return tuple(goal for digit in order for goal in by_digit[digit])


PROGRESS_INTERVAL_S = 0.25
"""Seconds between reports of progress."""


@dataclass(frozen=True, slots=True)
class SolverEffort:
    """The limits of a search: CP-SAT's deterministic time, whose unit is about a second on a fast
    core, and seconds by the clock, which end a search on a slow or busy machine.

    With one worker, the result depends on the problem and the seed alone, unless the clock ends the
    search. Several workers find good solutions of large vertical problems sooner.
    """

    deterministic: float = 60.0
    seconds: float = 120.0
    workers: int = 1

    def share(self, number: int, goals: int) -> SolverEffort:
        """Return the effort for goal `number`: half for the first, equal parts of the rest for the
        others."""
        part = 1.0 if goals == 1 else 0.5 if number == 0 else 0.5 / (goals - 1)
        return SolverEffort(part * self.deterministic, part * self.seconds, self.workers)


@dataclass(frozen=True)
class Found:
    """The solver's answer.

    `value` and `bound` are of the expression, in its units. `values` are of the placement's
    variables, empty if there is no solution.
    """

    status: Literal["proved", "found", "impossible", "unknown"]
    value: int
    bound: int
    values: Sequence[int]
    value_of: Callable[[Expression], int]


Watch = Callable[[float, float | None, float], None]
"""(seconds so far, the best value so far or None, the bound so far)."""


def minimise(
    placement: Placement, expression: Expression, effort: SolverEffort, seed: int, watch: Watch
) -> Found:
    """Minimise `expression` over the placement's model, starting from its hints."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 - half a second to import

    placement.model.minimize(expression)
    solver = _solver(effort, seed)
    status = _run(solver, placement.model, watch)
    known = {
        cp_model.OPTIMAL: "proved",
        cp_model.FEASIBLE: "found",
        cp_model.INFEASIBLE: "impossible",
    }
    if status == cp_model.MODEL_INVALID:
        raise RuntimeError(f"the exact model is invalid: {placement.model.validate()}")
    kind: Any = known.get(status, "unknown")
    solved = kind in ("proved", "found")
    return Found(
        kind,
        round(solver.objective_value) if solved else 0,
        0 if kind == "impossible" else math.ceil(solver.best_objective_bound - 1e-6),
        [solver.value(variable) for variable in placement.variables] if solved else [],
        solver.value,
    )


def is_possible(placement: Placement, effort: SolverEffort) -> bool | None:
    """Return whether the placement's model has a solution; None if that is not decided in time."""
    from ortools.sat.python import cp_model  # noqa: PLC0415

    status = _run(_solver(effort, 0), placement.model, lambda *_: None)
    known = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}
    return known.get(status)


def _solver(effort: SolverEffort, seed: int) -> Any:
    from ortools.sat.python import cp_model  # noqa: PLC0415

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = effort.workers
    solver.parameters.random_seed = seed % 2**31
    solver.parameters.max_deterministic_time = effort.deterministic
    solver.parameters.max_time_in_seconds = effort.seconds
    solver.parameters.catch_sigint_signal = False
    return solver


def _run(solver: Any, model: Any, watch: Watch) -> Any:
    """Return the solver's status; report the best value and bound to `watch` meanwhile."""
    from ortools.sat.python import cp_model  # noqa: PLC0415

    best: list[float] = []
    bound: list[float] = [0.0]
    status: list[Any] = []
    failed: list[BaseException] = []
    ended = threading.Event()

    class Solutions(cp_model.CpSolverSolutionCallback):
        """Records the value of each solution."""

        def on_solution_callback(self) -> None:
            """Record a solution that is better than the last; the solver calls this."""
            best.append(self.objective_value)
            bound[0] = max(bound[0], self.best_objective_bound)

    solver.best_bound_callback = lambda value: bound.__setitem__(0, value)

    def solve() -> None:
        try:
            status.append(solver.solve(model, Solutions()))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=solve, name="exact search", daemon=True)
    began_s = time.monotonic()
    thread.start()
    try:
        while not ended.wait(PROGRESS_INTERVAL_S):
            watch(time.monotonic() - began_s, best[-1] if best else None, bound[0])
    finally:
        if not ended.is_set():
            solver.stop_search()
        thread.join()
    if failed:
        raise failed[0]
    return status[0]
