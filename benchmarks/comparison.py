"""Compares results with those of the whole network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-4
"""The largest difference, relative to the largest value, of a result that counts as right."""


def difference(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Return the largest difference, relative to the largest value wanted; infinite for another
    shape or dtype, and for NaN."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    scale = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
    worst = float(np.abs(found - wanted).max(initial=0.0)) / scale
    return worst if worst == worst else float("inf")  # noqa: PLR0124 - NaN is not right either


def worst_of(pairs: Iterable[tuple[NDArray[Any], NDArray[Any]]]) -> float:
    """Return the largest difference of several results, each with what is wanted."""
    return max((difference(found, wanted) for found, wanted in pairs), default=0.0)
