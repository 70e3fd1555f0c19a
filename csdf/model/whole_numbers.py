"""Arrays of whole numbers of any size: int64 where they fit, else Python's own (dtype object)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[Any]
"""Whole numbers: int64 where they fit, else Python's own (dtype object)."""

SAFE = 2**62
"""What int64 can hold with room for one addition."""


def readable(number: int) -> str:
    """In digits, or roughly if those are many."""
    return str(number) if abs(number) < 10**15 else f"about {Decimal(number):.2e}"


def integers(values: Iterable[int]) -> Integers:
    """An array of whole numbers of any size."""
    listed = list(values)
    small = not listed or (min(listed) > -SAFE and max(listed) < SAFE)
    return np.array(listed, dtype=np.int64 if small else object)


def products(parts: Sequence[Integers], factors: Sequence[int]) -> Integers:
    """Each part × its factor, joined."""
    values = joined(parts)
    if not len(values):
        return values
    largest = max(abs(int(values.min())), abs(int(values.max())))
    if max(1, largest) * max(map(abs, factors)) >= SAFE:
        values = values.astype(object)
    factor = np.repeat(integers(factors).astype(values.dtype), [len(part) for part in parts])
    found: Integers = values * factor
    return found


def joined(parts: Sequence[Integers]) -> Integers:
    """All parts, one after the other."""
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
