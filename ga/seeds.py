"""What searches over genes begin with: contiguous cuts, and how large each gene is on a device."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ga.genes import Genes
from partition.errors import PartitionError
from partition.pricing.memory_budget import fair_memory
from partition.strategies.base import Problem, ignore_progress
from partition.strategies.contiguous.segm import SequentialBalanced
from partition.strategies.contiguous.sequential import contiguous_cut

TOLERANCES = (0.0, 0.05, 0.2)
"""By how much cuts may exceed the shortest period to save bytes (relative)."""


def cuts(problem: Problem, grouped: Genes) -> list[NDArray[np.int16]]:
    """Return contiguous cuts at several tolerances, which move few bytes, and one that balances
    memory."""
    found: list[NDArray[np.int16]] = []
    with contextlib.suppress(PartitionError):  # pins that no contiguous cut respects
        found.extend(grouped.of(contiguous_cut(problem, most)[0]) for most in TOLERANCES)
    with contextlib.suppress(PartitionError):
        balanced = SequentialBalanced().solve(replace(problem, on_progress=ignore_progress))
        found.append(grouped.of(problem.numbers(balanced.assignment)))
    return found


def shares(
    problem: Problem, grouped: Genes, held_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return each gene's share of a device's time and of `held_bytes` [genes]: [2, genes,
    devices]."""
    seconds = grouped.costs.layer_s
    held = np.broadcast_to(held_bytes[:, None] / fair_memory(problem.devices), seconds.shape)
    return np.stack([part / max(part.sum(), 1e-300) for part in (seconds, held)])
