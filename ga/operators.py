"""Random moves on whole populations: arrays of device numbers, [individuals, genes].

Annealing applies them to all its chains at once, and NSGA-II mutates by `move_run`. `tournaments`
and `change_one_gene` are operators of the paper's algorithm, on DEAP's individuals. Every function
takes its random generator as an argument. `devices` is the number of devices, and genes that the
user has pinned stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Population = NDArray[np.int16]

RELIEFS = 0.3
"""The share of moves in which `shift_or_relieve` relieves a fullest device."""

SHIFTS = 0.6
"""The share of moves in which `move_run` shifts a boundary."""


def random_population(
    rng: np.random.Generator, individuals: int, pinned: NDArray[np.integer], devices: int
) -> Population:
    """Return uniformly random genes; `pinned` [genes] holds device numbers, −1 for free genes."""
    drawn = rng.integers(0, devices, (individuals, len(pinned)), dtype=np.int16)
    return np.where(pinned >= 0, pinned.astype(np.int16), drawn)


def tournaments(rng: np.random.Generator, individuals: Sequence[Any], size: int) -> list[Any]:
    """Select the best of `size` random individuals, as many times as there are individuals.

    This is DEAP's `selTournament` for a whole generation in one array operation. Of equally good
    individuals it selects the one that was drawn first, as DEAP does.
    """
    values = np.array([individual.fitness.wvalues for individual in individuals])
    _, rank = np.unique(values, axis=0, return_inverse=True)
    drawn = rng.integers(0, len(individuals), (len(individuals), size))
    winners = np.take_along_axis(drawn, rank[drawn].argmax(axis=1)[:, None], axis=1)
    return [individuals[number] for number in winners[:, 0].tolist()]


def change_one_gene(
    rng: np.random.Generator, individual: Any, free: NDArray[np.intp], devices: int
) -> tuple[Any]:
    """Assign a random device to one random gene of `free`, in place: DEAP's `mutate`."""
    if len(free):
        individual[free[rng.integers(len(free))]] = int(rng.integers(devices))
    return (individual,)


def move_run(
    rng: np.random.Generator, population: Population, pinned: NDArray[np.integer], devices: int
) -> Population:
    """In each row, move a run of consecutive genes to another device; short runs are likelier.

    In the share `SHIFTS` of the rows a boundary shifts: the run lies next to it and goes to the
    device across. In the others any run goes to any device. In two rows of five, a gene of the
    receiving device returns in exchange, which keeps the balance. Pinned genes stay.
    """
    individuals, genes = population.shape
    rows = np.arange(individuals)
    length = rng.geometric(0.4, (individuals,))
    start = rng.integers(0, genes, (individuals,))
    target = rng.integers(0, devices, (individuals,)).astype(np.int16)
    if genes > 1:
        boundary = population[:, 1:] != population[:, :-1]
        last = (rng.random(boundary.shape) * boundary).argmax(axis=1)
        shifts = (rng.random(individuals) < SHIFTS) & boundary[rows, last]
        to_the_right = rng.random(individuals) < 0.5
        start = np.where(
            shifts, np.where(to_the_right, last + 1, np.maximum(last + 1 - length, 0)), start
        )
        length = np.where(shifts & ~to_the_right, last + 1 - start, length)
        across = population[rows, np.where(to_the_right, last, last + 1)]
        target = np.where(shifts, across, target)
    places = np.arange(genes)
    run = (places >= start[:, None]) & (places < (start + length)[:, None])
    moved = np.where(run & (pinned < 0), target[:, None], population)
    back = rng.integers(0, genes, (individuals,))
    exchanged = (
        (rng.random(individuals) < 0.4) & (population[rows, back] == target) & (pinned[back] < 0)
    )
    moved[rows[exchanged], back[exchanged]] = population[rows, start][exchanged]
    return moved


def relieve(
    rng: np.random.Generator,
    population: Population,
    pinned: NDArray[np.integer],
    sizes: NDArray[np.float64],
) -> Population:
    """In each row, move a gene off the fullest device, half of the time in exchange for another.

    `sizes` [kinds, genes, devices] are the costs of genes on devices, of several kinds; each row
    draws the kind of cost that defines its fullest device. The gene goes to the device of a
    neighbouring gene, or to the emptiest device. Pinned genes stay.
    """
    individuals, genes = population.shape
    rows = np.arange(individuals)
    load = drawn_loads(rng, population, sizes)
    fullest = load.argmax(axis=1)
    free = pinned < 0
    luck = rng.random((individuals, genes))
    given = (luck * ((population == fullest[:, None]) & free)).argmax(axis=1)
    beside = np.clip(given + rng.choice((-1, 1), individuals), 0, genes - 1)
    target = np.where(rng.random(individuals) < 0.6, population[rows, beside], load.argmin(axis=1))
    target = np.where(target == fullest, load.argmin(axis=1), target)
    back = (luck * ((population == target[:, None]) & free)).argmax(axis=1)
    moved = population.copy()
    is_given = (population[rows, given] == fullest) & free[given]
    is_back = is_given & (rng.random(individuals) < 0.5)
    is_back &= (population[rows, back] == target) & free[back]
    moved[rows[is_back], back[is_back]] = fullest[is_back]
    moved[rows[is_given], given[is_given]] = target[is_given]
    return moved


def drawn_loads(
    rng: np.random.Generator, population: Population, sizes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the loads [individuals, devices] by a kind of cost that is drawn for each row.

    `sizes` [kinds, genes, devices] are the costs of genes on devices.
    """
    kinds, _, devices = sizes.shape
    individuals = len(population)
    drawn = sizes[rng.integers(0, kinds, individuals)]
    own = np.take_along_axis(drawn, population[:, :, None].astype(np.intp), axis=2)[:, :, 0]
    slots = population + np.arange(individuals)[:, None] * devices
    load = np.bincount(slots.ravel(), own.ravel(), minlength=individuals * devices)
    return np.asarray(load.reshape(individuals, devices), dtype=np.float64)


def shift_or_relieve(
    rng: np.random.Generator,
    population: Population,
    pinned: NDArray[np.integer],
    devices: int,
    sizes: NDArray[np.float64],
    reliefs: float = RELIEFS,
) -> Population:
    """Apply `relieve` to the share `reliefs` of the rows, and `move_run` to the others."""
    relieved = relieve(rng, population, pinned, sizes)
    shifted = move_run(rng, population, pinned, devices)
    return np.where((rng.random(len(population)) < reliefs)[:, None], relieved, shifted)
