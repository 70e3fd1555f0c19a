"""Simulated annealing: many chains side by side, each a row of one array.

In every step each chain makes a random move (such as `ga.operators.move_run`) and keeps it if its
score falls, or, at temperature T, with probability exp(−rise / T). Scores are
logarithms of costs, so T is a relative worsening: it falls from `start` (a few per cent) to
nothing. Now and then the worst quarter of the chains restarts from the best quarter.

Source: S. Kirkpatrick, C. D. Gelatt, M. P. Vecchi, "Optimization by simulated annealing", Science,
1983.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ga.operators import Population

Score = Callable[[Population], NDArray[np.float64]]
Move = Callable[[np.random.Generator, Population], Population]


@dataclass(frozen=True, slots=True)
class CoolingSchedule:
    """`steps` moves per chain, from temperature `start`; a restart after every `epoch` steps."""

    steps: int
    start: float = 0.01
    epoch: int = 400


def anneal(
    rng: np.random.Generator,
    population: Population,
    move: Move,
    score: Score,
    schedule: CoolingSchedule,
    on_step: Callable[[int], None],
) -> Population:
    """Return the best state that each chain has seen, [chains, …]; `on_step` gets the steps done.

    `population` holds the chains' first states; `move` makes a new state of each; `score` prices
    states row by row, in one way for all chains, and smaller is better.
    """
    current, value = population.copy(), score(population)
    best, best_value = current.copy(), value.copy()
    for step in range(schedule.steps):
        temperature = schedule.start * (1 - step / schedule.steps) ** 2 + 1e-9
        moved = move(rng, current)
        moved_value = score(moved)
        rise = np.maximum(moved_value - value, 0.0)
        kept = rng.random(len(rise)) < np.exp(-rise / temperature)
        current[kept], value[kept] = moved[kept], moved_value[kept]
        improved = value < best_value
        best[improved], best_value[improved] = current[improved], value[improved]
        if (step + 1) % schedule.epoch == 0:
            order = np.argsort(value, kind="stable")
            quarter = len(order) // 4
            worst, leading = order[len(order) - quarter :], order[:quarter]
            current[worst], value[worst] = current[leading], value[leading]
        on_step(step + 1)
    return best
