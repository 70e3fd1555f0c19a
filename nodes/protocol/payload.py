"""Received payloads as arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from nodes.protocol.errors import RemoteProtocolError
from nodes.protocol.messages import TensorHeader

Array = npt.NDArray[Any]


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
