"""Makes the inputs on which subnets run before the first frame arrives.

Engines try a subnet out on them after preparing it, and an agent rehearses with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from nodes.executors.base import ExecutorError
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


class _Tensor(Protocol):
    """The dtype and the shape of an input."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def synthetic_inputs(tensors: Mapping[str, _Tensor]) -> dict[str, Array]:
    """Return a synthetic input for each of these tensors."""
    return {name: synthetic_input(each.dtype, each.shape) for name, each in tensors.items()}


@contextmanager
def trial_on(inputs: Mapping[str, Array]) -> Iterator[None]:
    """Explain an ExecutorError within the block, which runs a network on synthetic inputs.

    A network that needs a particular whole number as input refuses the synthetic zeros. It must not
    pass the trial even so: the layers after the refusing one have not run, and may crash.
    """
    try:
        yield
    except ExecutorError as error:
        zeros = ", ".join(name for name, array in inputs.items() if array.dtype.kind in "iu")
        if not zeros:
            raise
        raise type(error)(
            f"{error}; this was a trial with {zeros} set to 0: if the network needs another "
            "value, set it under `model: inputs:`"
        ) from error
