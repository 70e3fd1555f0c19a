"""Encodes tensors for the way to another node, and decodes those that came from one.

`nodes.protocol.encodings` lists the encodings and bounds their sizes. The executor thread encodes
after a firing and decodes before one, so frames wait encoded in their channels. NumPy releases the
interpreter meanwhile; the I/O thread continues.

- `fp16` and `bf16` round to nearest, ties to even. Finite values outside the range saturate: an
  infinity would spread through the layers after it and look like a fault of the node that made it.
- `int8` stores each group's least finite value, the step between two of 253 levels, and a level for
  each value. The group need not contain zero, because activations after a ReLU would waste half of
  a symmetric range. Three further codes stand for −∞, +∞ and NaN.
- `lossless` stores a bit per value that says whether it is zero, and the values that are not. Only
  their bytes with the sign and most of the exponent can be compressed, and Zstandard (Yann Collet,
  RFC 8878) does it; the other three are nearly random. The bits make this twice as fast as
  Zstandard on shuffled bytes, and smaller. A tensor that does not get shorter is sent as it is,
  which its length shows. −0.0 is not zero here, so every value comes back bit by bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nodes.core.deployment import described
from nodes.protocol.encodings import ENCODINGS, Encoding, groups, is_length
from nodes.protocol.errors import NodeError
from nodes.protocol.messages import ChannelSpec, Deployment
from nodes.protocol.payload import Array

try:
    import zstandard
except ImportError:
    HAS_ZSTANDARD = False
else:
    HAS_ZSTANDARD = True


AVAILABLE: tuple[Encoding, ...] = tuple(
    encoding for encoding in ENCODINGS if encoding != "lossless" or HAS_ZSTANDARD
)
"""The encodings that this process has."""

MISSING = (
    "the encoding lossless needs the package zstandard on that node; install csdf-edge[lossless], "
    "or choose another `wire`"
)

_LEVEL = 1
"""Higher levels of Zstandard take longer and save no more than 1 %."""

_HALF_LARGEST = np.float32(65504)
_BRAIN_INFINITY, _BRAIN_LARGEST, _BRAIN_NAN = 0x7F80, 0x7F7F, 0x0040

_LARGEST = np.finfo(np.float32).max
_LEVELS = 252
_MINUS_INFINITY, _INFINITY, _NAN = 253, 254, 255


def check_available(deployment: Deployment) -> None:
    """Raise `NodeError` if a channel has an encoding that this process does not have."""
    for channel in deployment.channels:
        if channel.encoding not in AVAILABLE:
            raise NodeError(
                f"node {deployment.node!r} cannot encode {described(channel)}: {MISSING}"
            )


class UndecodableError(NodeError):
    """A received payload is not what its encoding allows; `node` has sent it."""

    def __init__(self, channel: ChannelSpec, why: str) -> None:
        super().__init__(
            f"{channel.tensor!r} from {channel.source_node!r} cannot be decoded as "
            f"{channel.encoding}: {why}"
        )
        self.node = channel.source_node


def encode(array: Array, encoding: Encoding) -> memoryview:
    """Return the payload of a float32 array; `raw` needs no copy."""
    found = np.ascontiguousarray(array, np.float32).reshape(array.shape)
    if not found.size:
        return memoryview(b"")
    match encoding:
        case "fp16":
            return _payload(_half(found))
        case "bf16":
            return _payload(_brain(found))
        case "int8":
            return _payload(_levels(found))
        case "lossless":
            return _payload(_packed(found))
        case _:
            return _payload(found)


def decode(payload: Any, channel: ChannelSpec) -> Array:
    """Return the float32 array, of the channel's shape, that a payload encodes.

    Raises `UndecodableError` if the payload is not one of this channel. Nothing is allocated whose
    size does not follow from the channel's shape.
    """
    size_bytes, shape = memoryview(payload).nbytes, channel.shape
    if not is_length(channel.encoding, shape, size_bytes):
        raise UndecodableError(channel, f"it has {size_bytes} bytes")
    if not size_bytes:
        return np.empty(shape, np.float32)
    data = np.frombuffer(payload, np.uint8)
    match channel.encoding:
        case "fp16":
            with np.errstate(invalid="ignore"):  # ARM reports a signalling NaN that is converted
                found = data.view(np.float16).astype(np.float32)
        case "bf16":
            found = (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
        case "int8":
            found = _from_levels(data, shape)
        case "lossless":
            found = _unpacked(data, channel)
        case _:
            found = data.view(np.float32)
    return found.reshape(shape)


def _payload(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _half(array: Array) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        half = array.astype(np.float16)
        if np.isinf(half).any():
            limited = np.clip(array, -_HALF_LARGEST, _HALF_LARGEST)
            half = np.where(np.isinf(array), half, limited).astype(np.float16)
    return half


def _brain(array: Array) -> Array:
    bits = array.view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    with np.errstate(over="ignore"):
        brain = ((bits + (odd + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)
    exponent = bits & np.uint32(0x7F80_0000)
    if (exponent >= np.uint32(0x7F00_0000)).any():  # where rounding up may leave the range
        upper = (bits >> np.uint32(16)).astype(np.uint16)
        finite = np.isfinite(array)
        sign = upper & np.uint16(0x8000)
        overflown = finite & ((brain & np.uint16(0x7FFF)) >= _BRAIN_INFINITY)
        brain = np.where(overflown, sign | np.uint16(_BRAIN_LARGEST), brain)
        brain = np.where(finite, brain, upper)
        brain = np.where(np.isnan(array), brain | np.uint16(_BRAIN_NAN), brain)
    return brain


def _levels(array: Array) -> Array:
    """Return the least values and steps of all groups, and the levels, in one array of bytes."""
    grouped = array.reshape(groups(array.shape))
    least, largest, is_finite = _ranges(grouped)
    # In double precision, because the range may exceed that of float32, and a step its precision.
    steps = ((largest.astype(np.float64) - least) / _LEVELS).astype(np.float32)
    per_step = np.divide(1.0, steps, out=np.zeros(len(steps)), where=steps > 0, dtype=np.float64)
    is_usual = bool(per_step.max() < 1e30 and max(-least.min(), largest.max()) < 1e30)
    wide = np.float32 if is_usual else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        found: Array = grouped.astype(wide)
        found -= least.astype(wide)[:, None]
        found *= per_step.astype(wide)[:, None]
        np.rint(found, out=found)
        np.clip(found, 0, _LEVELS, out=found)
        levels = found.astype(np.uint8)
    if not is_finite:
        levels[grouped == -np.inf] = _MINUS_INFINITY
        levels[grouped == np.inf] = _INFINITY
        levels[np.isnan(grouped)] = _NAN
    return np.concatenate([each.reshape(-1).view(np.uint8) for each in (least, steps, levels)])


def _ranges(grouped: Array) -> tuple[Array, Array, bool]:
    """Return each group's least and largest finite value, and whether all values are finite."""
    with np.errstate(invalid="ignore"):
        least, largest = grouped.min((0, 2)), grouped.max((0, 2))
    if np.isfinite(least).all() and np.isfinite(largest).all():
        return least, largest, True
    inside = np.isfinite(grouped)
    some = inside.any((0, 2))
    least = np.where(some, np.where(inside, grouped, np.inf).min((0, 2)), 0)
    largest = np.where(some, np.where(inside, grouped, -np.inf).max((0, 2)), 0)
    return least.astype(np.float32), largest.astype(np.float32), False


def _from_levels(data: Array, shape: tuple[int, ...]) -> Array:
    outer, channels, inner = groups(shape)
    least, steps = data[: 8 * channels].copy().view(np.float32).reshape(2, channels)
    levels = data[8 * channels :].reshape(outer, channels, inner)
    with np.errstate(all="ignore"):  # a hostile sender may give any numbers
        furthest = np.abs(least).astype(np.float64) + steps.astype(np.float64) * _LEVELS
        wide = np.float32 if bool((furthest < _LARGEST).all()) else np.float64
        found: Array = levels * steps.astype(wide)[:, None]
        found += least.astype(wide)[:, None]
        if wide is np.float64:
            found = np.clip(found, -_LARGEST, _LARGEST).astype(np.float32)
    if int(levels.max()) > _LEVELS:
        found[levels == _MINUS_INFINITY] = -np.inf
        found[levels == _INFINITY] = np.inf
        found[levels == _NAN] = np.nan
    return found


def _packed(array: Array) -> Array:
    """Return a bit per value, the compressed upper bytes, and the other three of each value."""
    bits = array.reshape(-1).view(np.uint32)
    present = bits != 0
    kept = bits[present].view(np.uint8).reshape(-1, 4)
    upper = zstandard.ZstdCompressor(level=_LEVEL).compress(np.ascontiguousarray(kept[:, 3]).data)
    if bits.size // 8 + 1 + len(upper) + 3 * len(kept) >= array.nbytes:
        return array
    lower = np.ascontiguousarray(kept[:, :3]).reshape(-1)
    return np.concatenate([np.packbits(present), np.frombuffer(upper, np.uint8), lower])


def _unpacked(data: Array, channel: ChannelSpec) -> Array:
    size = math.prod(channel.shape)
    if data.nbytes == 4 * size:
        return data.view(np.float32)
    before = -(-size // 8)
    present = np.unpackbits(data[:before], count=min(size, 8 * data.size)).view(np.bool_)
    count = int(np.count_nonzero(present))
    if data.size < before + 3 * count:
        raise UndecodableError(channel, "it ends too early")
    upper = data[before : data.size - 3 * count]
    kept = np.empty((count, 4), np.uint8)
    kept[:, 3] = _decompressed(upper, count, channel)
    kept[:, :3] = data[data.size - 3 * count :].reshape(count, 3)
    bits: Array = np.zeros(size, np.uint32)
    bits[present] = kept.view(np.uint32).reshape(-1)
    return bits.view(np.float32)


def _decompressed(frame: Array, size: int, channel: ChannelSpec) -> Array:
    """Decompress a frame of Zstandard that must declare exactly this size, before it is trusted."""
    try:
        if zstandard.frame_content_size(frame.data) != size:
            raise UndecodableError(channel, "its declared size is not that of its values")
        found = zstandard.ZstdDecompressor().decompress(frame.data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise UndecodableError(channel, str(error)) from None
    if len(found) != size:
        raise UndecodableError(channel, "its size is not the one that it declares")
    return np.frombuffer(found, np.uint8)
