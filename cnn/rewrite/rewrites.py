"""Rewrites as values: changes to a network's layers before they are assigned to devices.

Every way of dividing a network in the literature is a rewrite followed by an assignment; vertical
and contiguous partitions need no rewrite. A rewrite is a value, so that a plan can contain it and
the machine that runs the plan can apply it again, with `cnn.model.Model.rewritten`. The rewritten
network computes what the original computes.

A layer that results from a rewrite has its own name, and its `Layer.part_of` names the layer of the
network as it was read that it is a part of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from cnn.errors import ModelError


@dataclass(frozen=True, slots=True)
class Slices:
    """Compute one layer in parts of its output channels.

    `channels` has the number of output channels of each part, in order; their sum is the layer's
    number.

    >>> from cnn.model import read
    >>> digits = read("examples/digits/digits.onnx")
    >>> sliced = digits.rewritten([Slices("logits", (6, 4))]).network
    >>> [sliced.tensors[name].shape for name in ("logits[1/2]", "logits[2/2]")]
    [(1, 6), (1, 4)]
    """

    layer: str
    channels: tuple[int, ...]


def part_name(name: str, number: int, count: int) -> str:
    """Return the name of part `number`, counted from 1, of `count` parts of a layer or tensor.

    A single part is the layer or tensor itself.

    >>> part_name("conv", 2, 4), part_name("conv", 1, 1)
    ('conv[2/4]', 'conv')
    """
    return name if count == 1 else f"{name}[{number}/{count}]"


@dataclass(frozen=True, slots=True)
class Channels:
    """The `count` output channels of a layer that can be sliced, in groups of `group` channels.

    Each slice must consist of whole groups or lie within one. If `is_channelwise`, a slice needs
    the same part of the layer's input, otherwise all of it.
    """

    count: int
    group: int = 1
    is_channelwise: bool = False

    def allow(self, parts: Sequence[int]) -> bool:
        """Whether the layer can be sliced into `parts`, given as numbers of channels in order.

        >>> Channels(8, group=4).allow((4, 4)), Channels(8, group=4).allow((5, 3))
        (True, False)
        """
        edges = list(accumulate(parts, initial=0))
        return edges[-1] == self.count and all(
            start // self.group == (stop - 1) // self.group
            or start % self.group == stop % self.group == 0
            for start, stop in pairwise(edges)
        )

    def divide(self, shares: Sequence[float]) -> tuple[int, ...]:
        """Return a number of channels for each of `shares`, as nearly in proportion as possible.

        Some are 0 if there are not enough channels. Those above 0 can be a layer's slices.

        >>> Channels(16).divide([2.0, 1.0, 1.0])
        (8, 4, 4)
        """
        groups = self.count // self.group
        if len(shares) <= groups:
            return tuple(self.group * part for part in apportion(groups, shares))
        dealt = apportion(len(shares), [1.0] * groups)
        edges = accumulate(dealt, initial=0)
        return tuple(
            part
            for start, stop in pairwise(edges)
            for part in apportion(self.group, shares[start:stop])
        )


@dataclass(frozen=True, slots=True)
class Bands:
    """Compute connected layers, or a single one, in bands of rows with their halo.

    Other layers need only one tensor of those that `layers` make; `rows` has the number of rows of
    that tensor in each band, from top to bottom. See `cnn.rewrite.bands`; `cnn.model.Model.fused`
    returns the cost of the halo.

    >>> from cnn.model import read
    >>> digits = read("examples/digits/digits.onnx")
    >>> banded = digits.rewritten([Bands(("same1_conv",), (5, 3))]).network
    >>> [banded.tensors[name].shape for name in ("same1[1/2]", "same1[2/2]")]
    [(1, 16, 5, 8), (1, 16, 3, 8)]
    """

    layers: tuple[str, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copies:
    """Run the whole network several times side by side; frames are distributed over the copies.

    `frames` has the number of frames, at least 1, that each copy gets in one cycle.

    >>> from cnn.model import read
    >>> digits = read("examples/digits/digits.onnx")
    >>> digits.rewritten([Copies((1, 1))]).network.inputs
    ('image@1', 'image@2')
    """

    frames: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of copies."""
        return len(self.frames)


def copy_name(name: str, number: int) -> str:
    """Return the name of copy `number`, counted from 1, of a layer or an activation.

    >>> copy_name("conv", 2)
    'conv@2'
    """
    return f"{name}@{number}"


def original_name(name: str) -> str:
    """Return the name of which `copy_name` made `name`.

    >>> original_name("conv@2")
    'conv'
    """
    return name.rpartition("@")[0]


Rewrite: TypeAlias = Slices | Bands | Copies


def to_data(rewrite: Rewrite) -> dict[str, Any]:
    """Convert a rewrite to JSON data.

    >>> to_data(Slices("conv", (12, 4)))
    {'slices': 'conv', 'channels': [12, 4]}
    """
    if isinstance(rewrite, Slices):
        return {"slices": rewrite.layer, "channels": list(rewrite.channels)}
    if isinstance(rewrite, Bands):
        return {"bands": list(rewrite.layers), "rows": list(rewrite.rows)}
    return {"copies": list(rewrite.frames)}


def from_data(data: Mapping[str, Any]) -> Rewrite:
    """Convert JSON data to a rewrite, the reverse of `to_data`.

    Raises `ModelError` for anything else.

    >>> from_data({"slices": "conv", "channels": [12, 4]})
    Slices(layer='conv', channels=(12, 4))
    """
    match data:
        case {"slices": str(layer), "channels": [*channels], **rest} if not rest:
            return Slices(layer, _counts(channels, data))
        case {"bands": [*layers], "rows": [*rows], **rest} if not rest and _all_text(layers):
            return Bands(tuple(layers), _counts(rows, data))
        case {"copies": [*frames], **rest} if not rest:
            return Copies(_counts(frames, data))
    raise ModelError(f"{dict(data)!r} is not a rewrite; give slices, bands or copies")


def _counts(values: list[Any], data: Mapping[str, Any]) -> tuple[int, ...]:
    if not values or not all(type(value) is int and value > 0 for value in values):
        raise ModelError(f"{dict(data)!r}: counts must be whole numbers above 0")
    return tuple(values)


def _all_text(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Return whole numbers in proportion to `shares` whose sum is `total`, by largest remainders.

    >>> apportion(10, [1, 1, 1])
    [4, 3, 3]
    """
    ideal = [total * share / sum(shares) for share in shares]
    parts = [int(part) for part in ideal]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - ideal[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
