"""The paper's own strategy: Eq. 1 alone, by its genetic algorithm (`ga.paper`).

Eq. 1 balances Eq. 2's memory and sees neither speeds nor links nor limits. If its result exceeds a
device's memory limit, the algorithm runs once more with all that exceeds limits ranked last.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ga.operators import Population
from ga.paper import Evolution, Excess, PaperParameters, evolve
from partition.pricing.paper_equations import beta_bytes, layer_beta_bytes
from partition.strategies.base import Problem, SearchProgress, Solution


class VerticalPaper:
    """Tang & Stefanov's vertical partitioning."""

    name = "vertical-paper"

    def __init__(self, parameters: PaperParameters | None = None) -> None:
        self._parameters = parameters or PaperParameters()

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`."""

        def excess(population: Population) -> NDArray[np.float64]:
            return problem.costs.evaluate(population).overrun_bytes

        evolution = self._evolve(problem, self._parameters)
        limited = ""
        if excess(evolution.best[None].astype(np.int16))[0] > 0:
            parameters = replace(self._parameters, stop_when_optimal=False)
            evolution = self._evolve(problem, parameters, excess)
            limited = ", among assignments within the memory limits if there are any"
        return Solution(
            problem.assignment(evolution.best),
            f"Eq. 1 of Tang & Stefanov (2021){limited}: Eq. 2 saves "
            f"{saving_percent(problem, evolution.best):.2f} % of memory per device; "
            + _how(evolution),
            generations=evolution.logbook,
        )

    def _evolve(
        self,
        problem: Problem,
        parameters: PaperParameters,
        excess: Excess | None = None,
    ) -> Evolution:
        def on_generation(done: int, best: NDArray[np.intp], _: float) -> None:
            saving = saving_percent(problem, best)
            problem.on_progress(
                SearchProgress(done, parameters.generations, f"Eq. 2 saves {saving:.2f} %")
            )

        return evolve(problem, parameters, on_generation, excess)


def saving_percent(problem: Problem, numbers: NDArray[np.integer]) -> float:
    """Return the paper's memory saving per device, in per cent: 100 (1 − max β / total β)."""
    beta = beta_bytes(layer_beta_bytes(problem.network), numbers[None], len(problem.devices))[0]
    return float(100 * (1 - beta.max() / beta.sum())) if beta.sum() else 0.0


def _how(evolution: Evolution) -> str:
    if evolution.is_optimal:
        return f"proved optimal after {evolution.generations} generations"
    return f"the best after {evolution.generations} generations"
