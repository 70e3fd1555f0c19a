"""Simulated annealing and steepest descent over assignments of genes to devices.

**Annealing** runs many chains side by side, each a row of one array. In every step each chain makes
a random move (such as `ga.operators.move_run`) and keeps it if its score falls, or, at temperature
T, with probability exp(−rise / T). Scores are logarithms of costs, so T is a relative worsening: it
falls from `start` (a few per cent) to nothing. After every `epoch` steps the worst quarter of the
chains restarts from the best quarter.

**Descent** examines all moves that relieve a fullest device: each of its genes goes to every other
device, alone and in exchange for every gene there. The best of these neighbours replaces the state
until none is better. With many devices, random moves seldom hit the device that limits the score.

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


def descend(
    rng: np.random.Generator,
    state: NDArray[np.int16],
    pinned: NDArray[np.integer],
    sizes: NDArray[np.float64],
    score: Score,
    steps: int,
    neighbours: int,
) -> NDArray[np.int16]:
    """Return a state [genes] that no neighbour improves on, or the best after `steps` steps.

    If a state has more than `neighbours` neighbours, that many are drawn at random. `sizes` [kinds,
    genes, devices] are the costs of genes on devices, one array for each kind of cost in the score.
    """
    value = float(score(state[None])[0])
    for _ in range(steps):
        near = _neighbours(state, pinned, sizes)
        if len(near) > neighbours:
            near = near[rng.choice(len(near), neighbours, replace=False)]
        if not len(near):
            return state
        values = score(near)
        best = int(values.argmin())
        if values[best] >= value:
            return state
        state, value = near[best], float(values[best])
    return state


def _neighbours(
    state: NDArray[np.int16], pinned: NDArray[np.integer], sizes: NDArray[np.float64]
) -> Population:
    """Return the states that relieve a device that is fullest in one kind of cost."""
    genes, devices = sizes.shape[1:]
    places, free = np.arange(genes), pinned < 0
    found = []
    for fullest in {int(_loads(state, kind).argmax()) for kind in sizes}:
        for gene in np.flatnonzero((state == fullest) & free):
            for target in range(devices):
                if target == fullest:
                    continue
                back = np.flatnonzero((state == target) & free)
                moved = np.repeat(state[None], 1 + len(back), axis=0)
                moved[:, gene] = target
                moved[1:][places[: len(back)], back] = fullest
                found.append(moved)
    return np.concatenate(found) if found else state[None][:0]


def _loads(state: NDArray[np.int16], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    genes, devices = sizes.shape
    own = sizes[np.arange(genes), state]
    return np.asarray(np.bincount(state, own, minlength=devices), dtype=np.float64)


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
    """Return the best state that each chain has visited, [chains, …].

    `population` holds the first states of the chains. `move` makes a new state of each. `score`
    prices states row by row, independently of the chain, and smaller is better. `on_step` gets the
    number of steps done.
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
