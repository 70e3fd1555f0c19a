"""A received payload as an array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def as_array(payload: object, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Array:
    """A received payload as a read-only array, without a copy."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    buffer: Any = payload
    return np.frombuffer(buffer, dtype).reshape(shape)
