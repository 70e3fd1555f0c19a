"""Whether a tensor holds NaN or infinity, asked of every output of every phase if the user wants.

A sum is all that it takes: NaN and infinity go through additions, so a finite sum has none among
its terms. Only a sum that is not finite, which may merely be too large, is looked into.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.protocol.errors import NodeError

Array = npt.NDArray[Any]


def is_finite(array: Array) -> bool:
    """Whether every value is a number and none infinite; true for tensors that cannot hold such."""
    if array.dtype.kind not in "fc":
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def check_finite(
    inputs: Collection[Array], outputs: Mapping[str, Array], exempt: frozenset[str]
) -> None:
    """Raise `NodeError` naming the first output that is not finite although all inputs are.

    Outputs in `exempt` may be: they were so when the phase was rehearsed.
    """
    for name, array in outputs.items():
        if name not in exempt and not is_finite(array) and all(map(is_finite, inputs)):
            what = "NaN" if np.isnan(array).any() else "infinity"
            raise NodeError(
                f"{name!r} holds {what}, made of inputs that hold none; it did not when it was "
                "tried before the stream"
            )
