"""Makes the inputs on which subnets run before the first frame arrives.

Engines try a subnet out on them after preparing it, and an agent rehearses with them.
"""

from __future__ import annotations

import math

import numpy as np

from nodes.protocol.payload import Array

_GOLDEN = 0x9E3779B9
"""The golden ratio modulo 1, times 2³²."""

_ODD_FRACTION = 0x3F800001
"""Bits of the float32 after 1. With other bits set above the last one, it is between 1 and 2, and
never equal to either."""


def synthetic_input(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return numbers above 0 and at most 1, or zeros for a dtype that is not floating-point.

    The numbers are multiples of the golden ratio modulo 1, as fractions of float32. Importing
    NumPy's random numbers instead would take 2.7 MB.
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
