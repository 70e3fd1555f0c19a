"""Received payloads as arrays.

Whether a tensor holds NaN or infinity, asked of every output of every phase if the user wants.

A sum is all that it takes: NaN and infinity go through additions, so a finite sum has none among
its terms. Only a sum that is not finite, which may merely be too large, is looked into.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.protocol.errors import NodeError, RemoteProtocolError
from nodes.protocol.messages import TensorHeader

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


def as_array(payload: object, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Array:
    """A received payload as a read-only array, without a copy."""
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    buffer: Any = payload
    return np.frombuffer(buffer, dtype).reshape(shape)


def checked_array(header: TensorHeader, payload: object, payload_bytes: int) -> Array:
    """The tensor that a header and the bytes that came with it make, as `as_array` does.

    Raises `RemoteProtocolError` if they make none.
    """
    dtype = np.dtype(header.dtype)
    if payload is None or payload_bytes != dtype.itemsize * math.prod(header.shape):
        raise _no_tensor(header, payload_bytes)
    try:
        return as_array(payload, dtype, header.shape)
    except ValueError:  # an axis is empty, and the others are longer than arrays can be
        raise _no_tensor(header, payload_bytes) from None


def _no_tensor(header: TensorHeader, payload_bytes: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{payload_bytes} bytes for {header.dtype}{list(header.shape)} of channel {header.channel}"
    )
