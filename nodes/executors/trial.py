"""Runs a subnet that was just prepared once, where it may crash.

An engine that crashes takes its process with it. So what it has made is loaded as an agent will
load it, and computes once on synthetic inputs, in the child that prepared it and before anybody can
find it in the cache. A crash then costs this child.

Synthetic inputs, on which subnets are tried out and rehearsed before the first frame comes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.executors.base import LoadOptions
from nodes.executors.onnx.mistakes import mistaken_optimizers
from nodes.executors.onnx.sessions import (
    engine_errors,
    keep_packing_off,
    loading_options,
    shrink_arena,
    tensor_specs,
)

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


def try_out(ort: Any, subnet: str, model: Path, options: LoadOptions, *, packs: bool) -> None:
    """Load the optimised `model` and run it once; raises ExecutorError if ONNX Runtime cannot."""
    settings = loading_options(ort, options, optimised=True)
    if not packs:
        keep_packing_off(settings)
    with engine_errors(ort, subnet, "load"):
        session = ort.InferenceSession(
            str(model),
            settings,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=mistaken_optimizers(model),
        )
    specs = tensor_specs(subnet, session.get_inputs())
    tensor_specs(subnet, session.get_outputs(), may_vary=True)
    with engine_errors(ort, subnet, "run"):
        session.run(None, {name: synthetic_input(x.dtype, x.shape) for name, x in specs.items()})
    del session
    shrink_arena(ort)
