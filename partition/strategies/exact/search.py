"""Minimisation of one expression with OR-Tools CP-SAT: a solution, a bound, and its status.

The search runs in a thread of its own while the caller's thread waits, so that Ctrl-C ends it and
progress is reported while it runs.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from partition.strategies.exact.placement import Expression, Placement

PROGRESS_INTERVAL_S = 0.25
"""How often progress is reported."""


@dataclass(frozen=True, slots=True)
class SolverEffort:
    """How long to search: CP-SAT's deterministic time, which is about a second on a fast core, and
    seconds by the clock, which end a search on a slow or busy machine.

    One `worker` makes the result depend on the problem and the seed alone, unless the clock ends
    the search. Several find good solutions of large vertical problems sooner.
    """

    deterministic: float = 60.0
    seconds: float = 120.0
    workers: int = 1

    def share(self, number: int, goals: int) -> SolverEffort:
        """Return the part of goal `number`: half for the first, equal parts of the rest for
        others."""
        part = 1.0 if goals == 1 else 0.5 if number == 0 else 0.5 / (goals - 1)
        return SolverEffort(part * self.deterministic, part * self.seconds, self.workers)


@dataclass(frozen=True)
class Found:
    """The solver's answer. `value` and `bound` are of the expression, in its units; `values` are of
    the placement's variables, empty if there is no solution."""

    status: Literal["proved", "found", "impossible", "unknown"]
    value: int
    bound: int
    values: Sequence[int]
    value_of: Callable[[Expression], int]


Watch = Callable[[float, float | None, float], None]
"""(seconds so far, the best value so far if there is one, the bound so far)."""


def minimise(
    placement: Placement, expression: Expression, effort: SolverEffort, seed: int, watch: Watch
) -> Found:
    """Minimise `expression` over the placement's model, from its hints on."""
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
    """Whether the placement's model has a solution; None if that is not known in time."""
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
    """Return the solver's status; `watch` gets the best value and bound meanwhile."""
    from ortools.sat.python import cp_model  # noqa: PLC0415

    best: list[float] = []
    bound: list[float] = [0.0]
    status: list[Any] = []
    ended = threading.Event()

    class Solutions(cp_model.CpSolverSolutionCallback):
        """Notes the value of each solution."""

        def on_solution_callback(self) -> None:
            """Called by the solver for each solution that is better than the last."""
            best.append(self.objective_value)
            bound[0] = max(bound[0], self.best_objective_bound)

    solver.best_bound_callback = lambda value: bound.__setitem__(0, value)

    def solve() -> None:
        try:
            status.append(solver.solve(model, Solutions()))
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
    return status[0]
