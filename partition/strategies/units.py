"""Units: the pieces of a network that can be shared between devices, by channels or by rows.

A unit is a layer with the layers after it that work channel by channel (activation, pooling, a
sum). If all are split in the same way, a part of each reads only its part of the tensor before it.
A unit split by **channels** divides the weights, while each part reads the whole input. A unit
split by **rows** divides the input, while each part holds the weights; this is done where the input
is larger than the weights. Units by rows that pass large tensors on to each other are fused into
one, so that such a tensor never travels within a band, at the price of a halo that is computed
twice.

Engines compute channels in blocks of 16 (AVX-512; 8 or 4 elsewhere) and pad smaller ones: with ONNX
Runtime 1.31, a slice of 24 of 256 channels takes 1.43 times its part of the whole convolution, one
of 102 takes 1.20 times, one of 32, 64 or 112 takes 1.06. So slices are whole blocks where they can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from cnn.errors import ModelError
from cnn.network import Layer, Network
from cnn.rewrite.rewrites import Bands, Channels, Rewrite, Slices
from partition.strategies.base import Problem, Rewritable

BLOCK = 16
"""The number of channels that engines compute together."""


@dataclass(frozen=True)
class Unit:
    """`layers` in topological order, of which only the first reads tensors from outside.

    A unit with `channels` can be split by channels. A unit without (None) can be split by the
    `rows` of its last layer's output or, if that is 0, not at all. Its slices are whole blocks of
    `block` channels each.
    """

    layers: tuple[str, ...]
    channels: Channels | None = None
    rows: int = 0
    block: int = 1

    @property
    def grains(self) -> int:
        """The largest number of parts that the unit can be split into."""
        if self.channels is not None:
            return self.channels.count // self.block
        return max(1, self.rows)

    def divide(self, shares: Sequence[float]) -> tuple[int, ...]:
        """Divide the channels or rows in proportion to `shares`; some parts may be 0."""
        if self.channels is None:
            return Channels(self.rows).divide(shares)
        if self.block > 1:
            return Channels(self.channels.count, self.block).divide(shares)
        return self.channels.divide(shares)

    def rewrites(self, sizes: Sequence[int]) -> tuple[Rewrite, ...]:
        """Return the rewrites that split the unit into parts of `sizes` channels or rows."""
        if self.channels is None:
            return (Bands(self.layers, tuple(sizes)),)
        return tuple(Slices(layer, tuple(sizes)) for layer in self.layers)


def find_units(problem: Problem, model: Rewritable, fused_bytes: float | None) -> tuple[Unit, ...]:
    """Return the units of a problem in topological order; each layer belongs to exactly one.

    Pinned layers are not split. Units that may be split by rows are fused where the tensor between
    them is larger than `fused_bytes`; with None, no unit is split by rows.
    """
    return _Search(problem, model).units(fused_bytes)


class _Search:
    def __init__(self, problem: Problem, model: Rewritable) -> None:
        self._network: Network = problem.network
        self._model = model
        self._channels: Mapping[str, Channels] = {
            name: channels
            for name, channels in model.slice_channels().items()
            if name not in problem.pins
        }
        self._in_bands = frozenset(model.band_layers()) - problem.pins.keys()

    def units(self, fused_bytes: float | None) -> tuple[Unit, ...]:
        found: list[Unit] = []
        taken: set[str] = set()
        for layer in self._network.layers:
            if layer.name not in taken:
                found.append(self._unit(layer, taken))
                taken.update(found[-1].layers)
        # Only the output of a unit's last layer is read outside, so this order is topological.
        place = self._network.place
        found.sort(key=lambda unit: place[unit.layers[-1]])
        return tuple(found if fused_bytes is None else self._by_rows(found, fused_bytes))

    def _unit(self, first: Layer, taken: Set[str]) -> Unit:
        """Return the unit of `first` and the layers after it that are not in `taken`, the layers of
        another branch that meets it.
        """
        channels = self._channels.get(first.name)
        if channels is None:
            return Unit((first.name,))
        layers = [first]
        while True:
            behind = self._follower(layers[-1], channels.count)
            if behind is None or behind.name in taken:
                break
            layers.append(behind)
        return Unit(tuple(layer.name for layer in layers), channels, block=block_of(channels))

    def _follower(self, layer: Layer, channels: int) -> Layer | None:
        """Return the only reader of `layer` if it has hardly any work and can be split likewise."""
        behind = self._only_reader(layer)
        if behind is None or behind.macs or behind.name not in self._channels:
            return None
        own = self._channels[behind.name]
        return behind if own.is_channelwise and own.count == channels else None

    def _only_reader(self, layer: Layer) -> Layer | None:
        if len(layer.outputs) != 1 or layer.outputs[0] in self._network.outputs:
            return None
        readers = self._network.consumers[layer.outputs[0]]
        return self._network.layer[readers[0]] if len(readers) == 1 else None

    def _by_rows(self, units: Sequence[Unit], fused_bytes: float) -> list[Unit]:
        """Return `units`, split by rows where that is better, fused where that saves traffic."""
        found: list[Unit] = []
        for unit in units:
            if not self._prefers_rows(unit):
                found.append(unit)
                continue
            fused = self._fused(found[-1], unit, fused_bytes) if found else None
            rows = fused or self._rows(unit.layers)
            if fused is not None:
                found.pop()
            found.append(rows or unit)
        return found

    def _prefers_rows(self, unit: Unit) -> bool:
        first = self._network.layer[unit.layers[0]]
        if unit.channels is None or not first.macs or not self._in_bands.issuperset(unit.layers):
            return False
        input_bytes = sum(self._network.tensors[name].bytes for name in first.inputs)
        return self._network.weight_bytes(unit.layers) < input_bytes

    def _fused(self, before: Unit, unit: Unit, fused_bytes: float) -> Unit | None:
        last = self._network.layer[before.layers[-1]]
        between = self._only_reader(last)
        if not before.rows or between is None or between.name != unit.layers[0]:
            return None
        if self._network.tensors[last.outputs[0]].bytes <= fused_bytes:
            return None
        return self._rows((*before.layers, *unit.layers))

    def _rows(self, layers: tuple[str, ...]) -> Unit | None:
        """Return the unit of `layers` split by rows; None if it cannot have two bands."""
        made = {self._network.layer[name].outputs[0] for name in layers}
        outside = {
            name
            for layer in layers
            for name in self._network.layer[layer].inputs
            if name not in made
        }
        if len(outside) > 1:
            return None
        try:
            height = self._model.fused(layers).height
        except ModelError:
            return None
        return Unit(layers, rows=height) if height > 1 else None


def block_of(channels: Channels) -> int:
    """Return the number of channels that slices are multiples of; 1 if there are too few channels
    or groups of channels."""
    if channels.group > 1 or channels.count < 2 * BLOCK:
        return 1
    return math.gcd(channels.count, BLOCK)
