"""View received bytes as arrays, and check arrays for NaN and infinity."""

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
    """Return whether no value is NaN or infinite; always true for integers and booleans.

    A finite sum proves it, because NaN and infinity survive additions. Only where the sum is not
    finite, which may be a mere overflow, is each value checked.
    """
    if array.dtype.kind not in "fc":
        return True
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum())) or bool(np.isfinite(array).all())


def check_finite(
    inputs: Collection[Array], outputs: Mapping[str, Array], exempt: frozenset[str]
) -> None:
    """Raise `NodeError` with the first output that is not finite although all inputs are.

    `exempt` names the outputs that were not finite in the rehearsal either; they are not checked.
    """
    for name, array in outputs.items():
        if name not in exempt and not is_finite(array) and all(map(is_finite, inputs)):
            what = "NaN" if np.isnan(array).any() else "infinity"
            raise NodeError(
                f"{name!r} holds {what} although the inputs hold none; it held none in the "
                "rehearsal before the stream"
            )


def as_array(payload: object, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> Array:
    """Return a received payload as a read-only array, without a copy.

    Raises `ValueError` if the payload's size is not that of the shape.
    """
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    buffer: Any = payload
    return np.frombuffer(buffer, dtype).reshape(shape)


def checked_array(header: TensorHeader, payload: object, payload_bytes: int) -> Array:
    """Return the tensor that a header and its payload describe, as `as_array` does.

    Raises `RemoteProtocolError` if the payload's size is not that of the header's shape.
    """
    dtype = np.dtype(header.dtype)
    if payload is None or payload_bytes != dtype.itemsize * math.prod(header.shape):
        raise _wrong_size(header, payload_bytes)
    try:
        return as_array(payload, dtype, header.shape)
    except ValueError:  # one axis has length 0 and another is longer than NumPy allows
        raise _wrong_size(header, payload_bytes) from None


def _wrong_size(header: TensorHeader, payload_bytes: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{payload_bytes} bytes arrived for {header.dtype}{list(header.shape)} of channel "
        f"{header.channel}"
    )
