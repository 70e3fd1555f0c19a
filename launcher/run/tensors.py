"""Converts a program's values for a network's inputs into tensors: the only way in for arrays.

Nodes receive the bytes of an array and nothing else, so a tensor is in C order and in this
machine's byte order. NumPy gives an array of the other byte order the same name (`float32`), and
ONNX Runtime reads its bytes as if they were in this machine's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from launcher.errors import UnfitFrameError, reason, shortened
from nodes.protocol.payload import Array

if TYPE_CHECKING:
    from cnn.network import Tensor


def as_tensors(
    given: Mapping[str, ArrayLike], inputs: Mapping[str, Tensor], *, copy: bool = False
) -> dict[str, Array]:
    """Return a frame's arrays as the network's `inputs` are described; see `as_tensor`.

    Raises `UnfitFrameError` if the frame has other names than the inputs, or an array does not fit.
    """
    if not isinstance(given, Mapping):
        raise UnfitFrameError(
            f"a frame is a mapping of input names to arrays, not {type(given).__name__}; "
            f"the network's inputs are {', '.join(inputs)}"
        )
    if not given.keys() <= inputs.keys():
        unknown = next(name for name in given if name not in inputs)
        raise UnfitFrameError(
            f"the network has no input {shortened(repr(unknown))}; its inputs are "
            f"{', '.join(inputs)}"
        )
    found = {}
    for name, tensor in inputs.items():
        if name not in given:
            raise UnfitFrameError(
                f"input {name!r} is missing; the network's inputs are {', '.join(inputs)}"
            )
        found[name] = as_tensor(given[name], name, tensor.dtype, tensor.shape, copy=copy)
    return found


def as_tensor(
    given: ArrayLike, name: str, dtype: str, shape: tuple[int, ...], *, copy: bool = False
) -> Array:
    """Return what was given for input `name` as a C-contiguous array of `dtype` and `shape`.

    An array must have that dtype, in any byte order and layout; nested lists, and other objects
    that NumPy converts, must hold numbers that `dtype` can represent. With `copy`, the result
    shares no memory with `given`. Raises `UnfitFrameError` if it does not fit, and for masked
    values.
    """
    array = _array(given, name, dtype)
    if (array.dtype.name, array.shape) != (dtype, shape):
        raise UnfitFrameError(
            f"input {name!r} is {array.dtype.name}{list(array.shape)}, "
            f"but the network takes {dtype}{list(shape)}"
        )
    convert = np.array if copy else np.asarray
    return convert(array, array.dtype.newbyteorder("="), order="C")


def _array(given: ArrayLike, name: str, dtype: str) -> Array:
    try:
        array = None if _has_masked(given) else np.asarray(given)
    except Exception as error:
        raise UnfitFrameError(
            f"input {name!r} is not an array of numbers: {reason(error)}"
        ) from error
    if array is None:
        raise UnfitFrameError(
            f"input {name!r} has masked values, which the network cannot leave out; "
            "replace them, for example by filled(0)"
        )
    if isinstance(given, np.ndarray) or array.dtype.name == dtype:
        return array
    if array.dtype.kind not in "biuf":
        held = "text" if array.dtype.kind in "SU" else array.dtype.name
        raise UnfitFrameError(
            f"input {name!r} holds {held} instead of numbers; the network takes {dtype}"
        )
    return _converted(given, array, name, dtype)


def _has_masked(given: object) -> bool:
    if isinstance(given, np.ma.MaskedArray):
        return bool(np.ma.is_masked(given))
    return isinstance(given, list | tuple) and any(map(_has_masked, given))


def _converted(given: ArrayLike, array: Array, name: str, dtype: str) -> Array:
    """Return numbers as `dtype`; `array` is of another one, and may have rounded large integers."""
    try:
        with np.errstate(all="ignore"):
            found = np.array(given if isinstance(given, list | tuple) else array, dtype)
    except (OverflowError, ValueError):
        is_kept: Array = np.array(False)
    else:
        is_exact = found.dtype.kind in "biu"
        is_kept = found == array if is_exact else np.isfinite(found) == np.isfinite(array)
    if not is_kept.all():
        raise UnfitFrameError(f"input {name!r} holds numbers that {dtype} cannot represent")
    return found
