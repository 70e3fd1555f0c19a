"""Finds the true Pareto front of a small problem, and how much of it a search has found.

A point is (period in seconds, largest memory share in bytes, bytes between devices per frame), all
to be minimised. The memory share is a device's weights divided by its room, where rooms are 1 on
average.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ga.nsga import hypervolume
from partition.errors import PartitionError
from partition.pricing.cost import Costs
from partition.pricing.memory_budget import fair_memory
from partition.pricing.traffic import Floats
from partition.strategies.alike import kinds_of
from partition.strategies.base import Problem

MOST_ASSIGNMENTS = 3_000_000
"""Beyond so many, the true front is not enumerated (about a minute for a dozen layers)."""

CHUNK = 20_000

BEYOND = 0.1
"""The reference point lies so much of the true front's extent behind its worst values."""


@dataclass(frozen=True)
class Front:
    """Points [points, 3] that no other betters in one objective without losing in another, by
    ascending period, and an assignment for each: device numbers [points, layers]."""

    points: Floats
    numbers: NDArray[np.intp]


def nondominated(points: Floats) -> NDArray[np.intp]:
    """Return the rows of `points` [points, objectives] that no other row betters in one objective
    without losing in another, each once, in lexicographic order."""
    _, rows = np.unique(points, axis=0, return_index=True)
    values = points[rows]
    kept: list[int] = []
    for index, value in enumerate(values):  # whatever betters a row comes before it
        if not (values[kept] <= value).all(axis=1).any():
            kept.append(index)
    return np.asarray(rows[kept], dtype=np.intp)


def points_of(problem: Problem, costs: Costs) -> Floats:
    """The three objectives of priced assignments: [individuals, 3]."""
    share = (costs.weight_bytes / fair_memory(problem.devices)).max(axis=1)
    return np.column_stack([costs.period_s, share, costs.wire_bytes])


def true_front(problem: Problem, groups: Sequence[int] | None = None) -> Front:
    """The front of all assignments that respect the pins and the devices' memory.

    Layers of one group, `groups` [layers], stay together (default: each is its own). Raises
    `PartitionError` if there are too many assignments, or if none fits.
    """
    of_layer = np.arange(len(problem.network.layers)) if groups is None else np.array(groups)
    options = _options(problem, of_layer)
    count = int(np.prod([len(own) for own in options], dtype=np.float64))
    if count > MOST_ASSIGNMENTS:
        raise PartitionError(
            f"{count} assignments are too many to look at; the true front is for problems with up "
            f"to {MOST_ASSIGNMENTS}: leave out devices, or group more layers"
        )
    kinds = kinds_of(problem)
    best_points, best_rows = np.empty((0, 3)), np.empty((0, len(of_layer)), dtype=np.intp)
    for chunk in _chunks(options, kinds):
        rows = chunk[:, of_layer]
        costs = problem.costs.evaluate(rows)
        fitting = costs.overrun_bytes <= 0
        points = np.concatenate([best_points, points_of(problem, costs)[fitting]])
        rows = np.concatenate([best_rows, rows[fitting]])
        kept = nondominated(points)
        best_points, best_rows = points[kept], rows[kept]
    if not len(best_points):
        raise PartitionError("no assignment fits the devices' memory; raise it, or add devices")
    return Front(best_points, best_rows)


def share_of_hypervolume(found: Floats, true: Floats) -> float:
    """How much of the hypervolume of the `true` front [points, 3] the points `found` have, in
    0..1; extents of the true front count as equally long, whatever their units."""
    least, extent = true.min(axis=0), np.ptp(true, axis=0)
    scale = np.where(extent > 0, extent, np.maximum(np.abs(least), 1e-300))
    reference = [1.0 + BEYOND] * true.shape[1]
    reference = np.where(extent > 0, reference, BEYOND).tolist()
    whole = hypervolume((true - least) / scale, reference)
    return hypervolume((found - least) / scale, reference) / whole


def _options(problem: Problem, of_layer: NDArray[np.integer]) -> list[tuple[int, ...]]:
    """The devices that each group may be on."""
    everywhere = tuple(range(len(problem.devices)))
    options = [everywhere] * (int(of_layer.max()) + 1)
    for group, pin in zip(of_layer.tolist(), problem.pinned.tolist(), strict=True):
        if pin >= 0:
            options[group] = tuple(device for device in options[group] if device == pin)
    return options


def _chunks(
    options: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]]
) -> Iterator[NDArray[np.intp]]:
    """All assignments of groups, but of those that differ in like devices only one."""
    rows = itertools.product(*options)
    while chunk := list(itertools.islice(rows, CHUNK)):
        numbers = np.array(chunk, dtype=np.intp)
        usual = np.ones(len(numbers), dtype=bool)
        for members in kinds:
            first = [_first_use(numbers, device) for device in members]
            for earlier, later in itertools.pairwise(first):
                usual &= earlier <= later
        if usual.any():
            yield numbers[usual]


def _first_use(numbers: NDArray[np.intp], device: int) -> NDArray[np.intp]:
    """The first group that a device has in each row; the number of groups if it has none."""
    mine = numbers == device
    return np.asarray(np.where(mine.any(axis=1), mine.argmax(axis=1), numbers.shape[1]))
