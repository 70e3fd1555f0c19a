"""Runs over parts of layers, where a whole layer is more than a device's fair share.

Every unit (`partition.strategies.units`) that is more than `FINENESS` of a fair share of the work
or of the memory is divided into equal parts, its grains. The search then sees a network of grains,
in which all layers are small. In its result, the grains of a unit that lie on one device become one
part again (`ga.hybrid.strategy.carry_out`), so only units that several devices share stay divided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.rewrite.rewrites import part_name
from ga.hybrid.strategy import Split, carry_out
from ga.hybrid.unit_rows import UnitRows, ways
from partition.errors import PartitionError
from partition.pricing.memory_budget import fair_memory
from partition.strategies.base import Problem, Rewritable, apply_rewrites

FINENESS = 0.15
"""The share of a device's fair load above which a unit is divided into grains."""

COARSE = 1.1
"""The multiple of a device's fair share of work or weights above which layers are divided."""


@dataclass(frozen=True)
class Grains:
    """A problem whose layers are grains: `problem` after dividing the units of `rows`.

    `holds` names for each unit one layer of each of its grains, in order.
    """

    whole: Problem
    model: Rewritable
    rows: UnitRows
    problem: Problem
    holds: tuple[tuple[str, ...], ...]

    def merged(self, numbers: NDArray[np.intp]) -> Split:
        """Return the problem in which the grains of a unit on one device are one part, and a device
        for each of its layers. `numbers` [layers of `problem`] are device numbers."""
        place = self.problem.network.place
        state = np.zeros((len(self.holds), len(self.whole.devices)), dtype=np.int16)
        for unit, names in enumerate(self.holds):
            for name in names:
                state[unit, numbers[place[name]]] += 1
        return carry_out(self.whole, self.model, self.rows, state)


def is_coarse(problem: Problem) -> bool:
    """Return whether one layer is more than a device's fair share of the work or the weights."""
    network, seconds = problem.network, problem.costs.layer_s
    fair_s = 1 / (1 / np.maximum(seconds.sum(axis=0), 1e-300)).sum()
    weights = np.array(network.layer_weight_bytes, float)
    fair = fair_memory(problem.devices)
    share = weights.max() / (weights.sum() * fair.max() / fair.sum()) if weights.any() else 0.0
    return bool(max(seconds.min(axis=1).max() / fair_s, share) > COARSE)


def grains(problem: Problem) -> Iterator[Grains]:
    """Yield the ways to divide a problem's layers; nothing if it has no model."""
    model = problem.model
    if model is None:
        return
    for rows in ways(problem, model, FINENESS):
        units = rows.units
        parts = [
            [size for size in unit.divide([1.0] * int(count)) if size]
            for unit, count in zip(units, rows.grains, strict=True)
        ]
        rewrites = [
            rewrite
            for unit, sizes in zip(units, parts, strict=True)
            if len(sizes) > 1
            for rewrite in unit.rewrites(sizes)
        ]
        try:
            divided = apply_rewrites(problem, model, rewrites)
        except PartitionError:
            continue
        yield Grains(
            problem,
            model,
            rows,
            divided,
            tuple(
                tuple(
                    part_name(unit.layers[-1], number, len(sizes))
                    for number in range(1, len(sizes) + 1)
                )
                for unit, sizes in zip(units, parts, strict=True)
            ),
        )
