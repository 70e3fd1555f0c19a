"""The encodings of tensors between devices as the cost model sees them, and which the user allows.

An encoding makes the float32 tensors of a channel shorter on their way, for processor time at both
ends, and most change the values a little. Agents define the formats (`nodes.protocol.encodings`).
Here are their sizes, their costs and the deviations to expect; `partition.prediction.encoding`
chooses one for each channel. Only channels between two devices are encoded: frames and results
travel raw.

The sizes of `lossless` and the deviations are typical values, measured on networks of the usual
kinds; a run reports its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from cnn.network import Network, Tensor
from partition.devices import Device

Encoding: TypeAlias = Literal["raw", "lossless", "fp16", "bf16", "int8"]

Wire: TypeAlias = Literal["fp32", "fp16", "bf16", "int8", "lossless", "auto"]
"""Encodings that the user may choose; `fp32` is `raw`, `auto` leaves the choice to the planner."""

LOSSY: frozenset[str] = frozenset({"fp16", "bf16", "int8"})
"""The encodings that change the values of tensors."""

LOSSLESS_DEVIATION = 1e-4
"""The relative difference that is allowed if the user gives no tolerance: nothing beyond the usual
rounding errors, so that only lossless encodings are used."""

FEWEST_IN_GROUP = 16
"""The fewest values of a channel that get their own scale (`nodes.protocol.encodings`)."""


@dataclass(frozen=True, slots=True)
class EncodingCost:
    """The typical costs of an encoding.

    `encode` and `decode` are seconds per byte of the raw tensor, relative to
    `Device.encode_s_per_byte`. `deviation` is the largest difference of a network's results,
    relative to their largest value, that is to be expected if all its channels are encoded.
    """

    encode: float
    decode: float
    deviation: float


COSTS: Mapping[Encoding, EncodingCost] = {
    "raw": EncodingCost(0.0, 0.0, 0.0),
    "lossless": EncodingCost(2.0, 1.8, 0.0),
    "fp16": EncodingCost(1.0, 0.5, 5e-3),
    "bf16": EncodingCost(0.3, 0.1, 2e-2),
    "int8": EncodingCost(0.5, 0.2, 5e-2),
}

SPARSE = frozenset({"Relu", "Clip"})
"""Operators that make many zeros, which `lossless` shortens."""

SPARSE_RATIO, DENSE_RATIO = 0.55, 0.9
"""The size of a lossless encoding relative to the raw tensor, with many zeros and without."""

_BY_LENGTH: tuple[Wire, ...] = ("int8", "fp16", "bf16", "lossless", "fp32")
"""Encodings that two ends may choose, the shortest first, then the more precise first."""


@dataclass(frozen=True, slots=True)
class WirePolicy:
    """Which encodings the user wants: for all channels, and for those that a device's link carries.

    A device's own word counts before that for all. If both ends have one and they differ, the
    planner's choice gives way to a definite one, and of two definite ones the shorter counts.
    `tolerance` is the relative difference of the results that `auto` may cause.

    >>> choice = WirePolicy("fp32", {"a": "fp16", "b": "lossless"})
    >>> choice.between("a", "c"), choice.between("b", "a"), choice.between("c", "d")
    ('fp16', 'fp16', 'fp32')
    """

    everywhere: Wire = "fp32"
    of_device: Mapping[str, Wire] = field(default_factory=dict)
    tolerance: float = LOSSLESS_DEVIATION

    def between(self, source: str, target: str) -> Wire:
        """Return what is wanted for the channels between two devices."""
        own = [self.of_device[end] for end in (source, target) if end in self.of_device]
        definite = [wire for wire in own if wire != "auto"]
        if definite:
            return min(definite, key=_BY_LENGTH.index)
        return own[0] if own else self.everywhere

    @property
    def words(self) -> frozenset[Wire]:
        """Everything that is wanted somewhere."""
        return frozenset((self.everywhere, *self.of_device.values()))

    @property
    def allowed(self) -> tuple[Encoding, ...]:
        """The encodings that `auto` may use, those with the least deviation first."""
        found: list[Encoding] = [e for e in COSTS if COSTS[e].deviation <= self.tolerance]
        return tuple(sorted(found, key=lambda encoding: COSTS[encoding].deviation))


RAW = WirePolicy()
"""Nothing is encoded."""


def encoding_of(wire: Wire) -> Encoding:
    """Return the encoding that a definite word stands for; `auto` begins with raw channels."""
    return "raw" if wire == "fp32" or wire == "auto" else wire  # noqa: PLR1714 - mypy narrows this


def encoded_bytes(encoding: Encoding, tensor: Tensor, operator: str = "") -> int:
    """Return the expected bytes of an encoded frame; `operator` is the layer that makes it."""
    match encoding:
        case "fp16" | "bf16":
            return 2 * tensor.elements
        case "int8":
            return tensor.elements + 8 * _groups(tensor.shape)
        case "lossless":
            return round(tensor.bytes * (SPARSE_RATIO if operator in SPARSE else DENSE_RATIO))
        case _:
            return tensor.bytes


def shortest_bytes(wire: WirePolicy, network: Network) -> dict[str, int]:
    """Return the expected bytes of each tensor of a network that would get shorter between two
    devices that specify no encoding, in the shortest encoding that `wire` allows there.
    """
    found = {}
    if wire.everywhere != "fp32":
        choices = wire.allowed if wire.everywhere == "auto" else (encoding_of(wire.everywhere),)
        for name, made_by in network.producer.items():
            tensor, operator = network.tensors[name], network.layer[made_by].operator
            size = min(encoded_bytes(encoding, tensor, operator) for encoding in choices)
            if is_encodable(tensor) and size < tensor.bytes:
                found[name] = size
    return found


def is_encodable(tensor: Tensor) -> bool:
    """Return whether a tensor between two devices can have another encoding than `raw`."""
    return tensor.dtype == "float32" and not tensor.varies


def _groups(shape: tuple[int, ...]) -> int:
    size = math.prod(shape)
    if len(shape) < 2 or not size:
        return min(size, 1)
    return shape[1] if size // shape[1] >= FEWEST_IN_GROUP else 1


def encode_s(device: Device, encoding: Encoding, raw_bytes: int) -> float:
    """Return the seconds that a device takes to encode a tensor."""
    return COSTS[encoding].encode * device.encode_s_per_byte * raw_bytes


def decode_s(device: Device, encoding: Encoding, raw_bytes: int) -> float:
    """Return the seconds that a device takes to decode a tensor."""
    return COSTS[encoding].decode * device.encode_s_per_byte * raw_bytes
