"""Rewrites of a network: what is done to its layers before they are given to devices.

Every way of dividing a network in the literature is a rewrite followed by an assignment (vertical
and contiguous partitions need none). A rewrite is a value, so that a plan can carry it and whoever
runs the plan can carry it out again; `cnn.model.Model.rewritten` does so. What a rewritten network
computes is what the whole one does.

Layers that come of a rewrite have names of their own and tell in `Layer.part_of` which layer of
the network as it was read they are a part of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

from cnn.errors import ModelError


@dataclass(frozen=True, slots=True)
class Slices:
    """One layer computed in parts of its output channels.

    `channels` has the number of output channels of each part, in order; their sum is the layer's.
    """

    layer: str
    channels: tuple[int, ...]


def part_name(name: str, number: int, count: int) -> str:
    """What part `number`, counted from 1, of `count` of a layer or tensor is called.

    A single part is the layer or tensor itself.
    """
    return name if count == 1 else f"{name}[{number}/{count}]"


@dataclass(frozen=True, slots=True)
class Channels:
    """The `count` output channels of a layer that can be sliced, in groups of `group` channels.

    Each slice has to be some whole groups or to lie within one. It reads the same part of what the
    layer reads if `is_channelwise`, else all of it.
    """

    count: int
    group: int = 1
    is_channelwise: bool = False

    def allow(self, parts: Sequence[int]) -> bool:
        """Whether the layer can be sliced into `parts`, given as numbers of channels in order."""
        edges = list(accumulate(parts, initial=0))
        return edges[-1] == self.count and all(
            start // self.group == (stop - 1) // self.group
            or start % self.group == stop % self.group == 0
            for start, stop in pairwise(edges)
        )

    def divide(self, shares: Sequence[float]) -> tuple[int, ...]:
        """A number of channels for each of `shares`, in proportion as nearly as can be.

        Some are 0 if there are not enough channels. Those above 0 can be a layer's slices.
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
    """Connected layers, or a single one, computed in bands of rows, with the halo each band needs.

    Of all that `layers` make, others need only one tensor; `rows` has the number of rows of that
    tensor in each band, from top to bottom. See `cnn.rewrite.bands`; `cnn.model.Model.fused` tells
    what the halo costs.
    """

    layers: tuple[str, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copies:
    """The whole network several times, side by side; frames are dealt out to the copies.

    `frames` has the number of frames that each copy gets of a cycle, 1 at least.
    """

    frames: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many copies there are."""
        return len(self.frames)


def copy_name(name: str, number: int) -> str:
    """What copy `number`, counted from 1, of a layer or an activation is called."""
    return f"{name}@{number}"


def original_name(name: str) -> str:
    """The reverse of `copy_name`: what a copied layer or activation was called before."""
    return name.rpartition("@")[0]


Rewrite: TypeAlias = Slices | Bands | Copies


def to_data(rewrite: Rewrite) -> dict[str, Any]:
    """A rewrite as JSON data."""
    if isinstance(rewrite, Slices):
        return {"slices": rewrite.layer, "channels": list(rewrite.channels)}
    if isinstance(rewrite, Bands):
        return {"bands": list(rewrite.layers), "rows": list(rewrite.rows)}
    return {"copies": list(rewrite.frames)}


def from_data(data: Mapping[str, Any]) -> Rewrite:
    """The reverse of `to_data`; raises `ModelError` for what is no rewrite."""
    match data:
        case {"slices": str(layer), "channels": [*channels], **rest} if not rest:
            return Slices(layer, _counts(channels, data))
        case {"bands": [*layers], "rows": [*rows], **rest} if not rest and _all_text(layers):
            return Bands(tuple(layers), _counts(rows, data))
        case {"copies": [*frames], **rest} if not rest:
            return Copies(_counts(frames, data))
    raise ModelError(f"{dict(data)!r} is no rewrite; it has slices, bands or copies")


def _counts(values: list[Any], data: Mapping[str, Any]) -> tuple[int, ...]:
    if not values or not all(type(value) is int and value > 0 for value in values):
        raise ModelError(f"{dict(data)!r}: counts must be whole numbers above 0")
    return tuple(values)


def _all_text(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values)


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers in proportion to `shares` with the sum `total`, by largest remainders."""
    ideal = [total * share / sum(shares) for share in shares]
    parts = [int(part) for part in ideal]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - ideal[i], i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
