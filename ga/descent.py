"""Steepest descent, which ends a search: the best of all moves that relieve a fullest device.

Where devices are many, a random move seldom hits a device that holds the score up. Here every gene
of such a device goes to every other device, alone and in exchange for every gene of it; the best of
these neighbours replaces the state, until none is better.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """Return a state [genes] that no neighbour betters, or the best after `steps` steps.

    If a state has more than so many `neighbours`, as many are drawn at random.

    `sizes` [kinds, genes, devices] are what genes cost devices in the ways that the score looks
    at.
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
    """Return the states that relieve a device that is fullest in one of the ways."""
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
