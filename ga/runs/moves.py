"""Random moves on runs: maximal sequences of consecutive genes on one device.

An assignment of genes to devices is a sequence of runs. A device with few runs has few phases and
sends few tensors, whichever genes they hold. Every move keeps an assignment one of few runs: it
shifts a boundary between two runs, slides several boundaries by one gene, gives a run to another
device, exchanges two runs, splits a run, or merges it with its neighbour.

Populations are arrays of device numbers, [individuals, genes], as in `ga.operators`. Genes that the
user has pinned stay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ga.operators import Population, drawn_loads

KINDS = ("shift", "slide", "give", "swap", "split", "merge")

ODDS = (0.45, 0.15, 0.12, 0.12, 0.12, 0.04)
"""How often `RunMoves` makes a move of each of `KINDS`."""

RELIEFS = 0.5
"""The share of shifts that take genes from a fullest device."""

FARTHER = 0.45
"""A shift by k genes has the probability `FARTHER` × (1 − `FARTHER`)^(k − 1)."""

MOST_RUNS = 3
"""The runs that a device may have."""


def run_numbers(population: Population) -> NDArray[np.intp]:
    """Return the number of the run of each gene, from 0 in each row: [individuals, genes].

    >>> run_numbers(np.array([[4, 4, 1, 4]], dtype=np.int16))
    array([[0, 0, 1, 2]])
    """
    numbers = np.zeros(population.shape, dtype=np.intp)
    np.cumsum(population[:, 1:] != population[:, :-1], axis=1, out=numbers[:, 1:])
    return numbers


def runs_of(population: Population, devices: int) -> NDArray[np.intp]:
    """Count the runs of each device: [individuals, devices].

    >>> runs_of(np.array([[0, 0, 1, 0]], dtype=np.int16), devices=3)
    array([[2, 1, 0]])
    """
    begins = np.ones(population.shape, dtype=bool)
    begins[:, 1:] = population[:, 1:] != population[:, :-1]
    rows, _ = np.nonzero(begins)
    slots = rows * devices + population[begins]
    counts = np.bincount(slots, minlength=len(population) * devices)
    return counts.reshape(len(population), devices)


@dataclass(frozen=True, slots=True)
class RunMoves:
    """The moves of one problem.

    `pinned` [genes] is a device number or −1 for free. `sizes` [kinds, genes, devices] are the
    costs of genes on devices, one array for each kind of cost that may make a device the fullest.
    No move gives a device more than `most_runs` runs, unless it had more before.
    """

    pinned: NDArray[np.integer]
    sizes: NDArray[np.float64]
    most_runs: int = MOST_RUNS

    def __call__(self, rng: np.random.Generator, population: Population) -> Population:
        """Return a population in which each row has made one random move, or stays."""
        devices = self.sizes.shape[2]
        kinds = rng.choice(len(KINDS), len(population), p=ODDS)
        moved = population.copy()
        for kind, name in enumerate(KINDS):
            rows = np.flatnonzero(kinds == kind)
            if len(rows):
                moved[rows] = getattr(self, f"_{name}")(rng, population[rows], devices)
        moved = np.where(self.pinned < 0, moved, population)
        before, after = runs_of(population, devices), runs_of(moved, devices)
        refused = (after > np.maximum(before, self.most_runs)).any(axis=1)
        moved[refused] = population[refused]
        return moved

    def _shift(self, rng: np.random.Generator, population: Population, _: int) -> Population:
        individuals, genes = population.shape
        if genes == 1:
            return population
        rows = np.arange(individuals)
        boundary = population[:, 1:] != population[:, :-1]
        fullest = drawn_loads(rng, population, self.sizes).argmax(axis=1)[:, None]
        left, right = population[:, :-1] == fullest, population[:, 1:] == fullest
        relieving = boundary & (left | right)
        relieves = (rng.random(individuals) < RELIEFS) & relieving.any(axis=1)
        eligible = np.where(relieves[:, None], relieving, boundary)
        last = (rng.random(eligible.shape) * eligible).argmax(axis=1)
        to_the_right = np.where(relieves, right[rows, last], rng.random(individuals) < 0.5)
        length = rng.geometric(FARTHER, individuals)
        start = np.where(to_the_right, last + 1, last + 1 - length)
        grown = population[rows, np.where(to_the_right, last, last + 1)]
        return _filled(population, start, start + length, grown)

    def _slide(self, rng: np.random.Generator, population: Population, _: int) -> Population:
        individuals, genes = population.shape
        ends = np.sort(rng.integers(0, genes, (individuals, 2)), axis=1)
        step = rng.choice((-1, 1), (individuals, 1))
        places = np.arange(genes)
        inside = (places >= ends[:, :1]) & (places <= ends[:, 1:])
        source = np.clip(np.where(inside, places + step, places), 0, genes - 1)
        return np.take_along_axis(population, source, axis=1)

    def _give(self, rng: np.random.Generator, population: Population, devices: int) -> Population:
        mine = _one_run(rng, population)
        target = rng.integers(0, devices, (len(population),))
        return np.where(mine, target[:, None], population).astype(np.int16)

    def _swap(self, rng: np.random.Generator, population: Population, _: int) -> Population:
        one, other = _one_run(rng, population), _one_run(rng, population)
        rows = np.arange(len(population))
        first, second = population[rows, one.argmax(axis=1)], population[rows, other.argmax(axis=1)]
        moved = np.where(one, second[:, None], population)
        return np.where(other, first[:, None], moved)

    def _split(self, rng: np.random.Generator, population: Population, devices: int) -> Population:
        individuals, genes = population.shape
        numbers, rows = run_numbers(population), np.arange(individuals)
        at = rng.integers(0, genes, (individuals,))
        places = np.arange(genes)
        part = (numbers == numbers[rows, at][:, None]) & (places >= at[:, None])
        target = rng.integers(0, devices, (individuals,))
        return np.where(part, target[:, None], population).astype(np.int16)

    def _merge(self, rng: np.random.Generator, population: Population, _: int) -> Population:
        individuals, genes = population.shape
        mine, rows = _one_run(rng, population), np.arange(individuals)
        before = np.maximum(np.argmax(mine, axis=1) - 1, 0)
        after = np.minimum(genes - np.argmax(mine[:, ::-1], axis=1), genes - 1)
        beside = np.where(rng.random(individuals) < 0.5, before, after)
        return np.where(mine, population[rows, beside][:, None], population)


def _one_run(rng: np.random.Generator, population: Population) -> NDArray[np.bool_]:
    """Return where a random run of each row lies: bool [individuals, genes]."""
    numbers = run_numbers(population)
    drawn = rng.integers(0, numbers[:, -1] + 1)
    return np.asarray(numbers == drawn[:, None])


def _filled(
    population: Population,
    start: NDArray[np.integer],
    end: NDArray[np.integer],
    target: NDArray[np.integer],
) -> Population:
    places = np.arange(population.shape[1])
    inside = (places >= start[:, None]) & (places < end[:, None])
    return np.where(inside, target[:, None], population)
