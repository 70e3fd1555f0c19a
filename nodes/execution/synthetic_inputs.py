"""Synthetic inputs, on which subnets are tried out and rehearsed before the first frame comes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_GOLDEN = 0x9E3779B9
"""The golden ratio modulo 1, times 2³²."""

_ODD_FRACTION = 0x3F800001
"""Bits of the float32 after 1: with others above the last, a number between 1 and 2 and neither."""


def synthetic_input(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return small positive numbers, or zeros for a dtype of whole numbers.

    They are multiples of the golden ratio modulo 1, as fractions of float32. Importing NumPy's
    random numbers instead would take 2.7 MB.
    """
    if np.dtype(dtype).kind != "f":
        return np.zeros(shape, dtype)
    numbers = np.arange(math.prod(shape), dtype=np.uint32)
    numbers *= np.uint32(_GOLDEN)
    numbers >>= np.uint32(9)
    numbers |= np.uint32(_ODD_FRACTION)
    made = numbers.view(np.float32)
    made -= np.float32(1)
    return made.reshape(shape).astype(dtype, copy=False)
