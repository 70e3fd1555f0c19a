"""Units (`partition.strategies.units`) as arrays: which work and bytes divide, and which do not.

Units are formed in a few ways (`ways`), which a search tries one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from cnn.rewrite.rewrites import Channels
from partition.pricing.paper_equations import layer_beta_bytes
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem, Rewritable
from partition.strategies.units import Unit, find_units

FUSED = (None, 0.05, 0.1)
"""The ways of forming units: by channels only (None), or by rows too, fused where a tensor is
larger than this part of a device's fair share of Eq. 2."""


@dataclass(frozen=True)
class UnitRows:
    """The arrays of units, in the order of `units`; bytes and seconds are those of whole units.

    `grains` is the most parts that a state may divide each unit into, 1 if it stays whole; `pinned`
    is a device number or −1. `layer_s` and `halo_s` [units, devices] are the seconds of a unit, and
    those that each cut between two of its bands adds. Of Eq. 2, `own_bytes` are divided among the
    parts, and `shared_bytes` count for each part. `weight_bytes` are divided unless `by_rows`.
    `live_bytes` is the largest input and output of a layer.
    """

    units: tuple[Unit, ...]
    grains: NDArray[np.int16]
    pinned: NDArray[np.intp]
    by_rows: NDArray[np.bool_]
    layer_s: Floats
    halo_s: Floats
    own_bytes: Floats
    shared_bytes: Floats
    weight_bytes: Floats
    live_bytes: Floats
    tensors: Tensors


@dataclass(frozen=True)
class Tensors:
    """The tensors between units.

    `bytes` and `source` (a unit, −1 for the launcher) are per tensor. The `readers` of tensor t are
    units from index `starts[t]` on; `needs_all` says for each reader whether each of its parts
    needs the whole tensor. `cuts` are (tensor, reader) of readers by rows whose rows are cut out on
    the producer's device, by layers that count the tensor again in Eq. 2.
    """

    bytes: Floats
    source: NDArray[np.intp]
    readers: NDArray[np.intp]
    starts: NDArray[np.intp]
    needs_all: NDArray[np.bool_]
    cuts: tuple[tuple[int, int], ...]

    @property
    def of_reader(self) -> NDArray[np.intp]:
        """The tensor that each of `readers` reads."""
        counts = np.diff([*self.starts, len(self.readers)])
        return np.repeat(np.arange(len(self.bytes)), counts)


def ways(problem: Problem, model: Rewritable, fineness: float) -> list[UnitRows]:
    """Return the arrays of the units that are formed in each way, where these differ."""
    fair_share = float(layer_beta_bytes(problem.network).sum()) / len(problem.devices)
    found = dict.fromkeys(
        find_units(problem, model, None if part is None else part * fair_share) for part in FUSED
    )
    return [unit_rows(problem, model, units, fineness) for units in found]


def unit_rows(
    problem: Problem, model: Rewritable, units: Sequence[Unit], fineness: float
) -> UnitRows:
    """Return the arrays of `units`.

    A unit whose share of a device's fair load, of time or of Eq. 2, is above `fineness` is divided
    into grains of about that share.
    """
    return _Builder(problem, model, tuple(units)).build(fineness)


class _Builder:
    def __init__(self, problem: Problem, model: Rewritable, units: tuple[Unit, ...]) -> None:
        self._problem = problem
        self._network: Network = problem.network
        self._model = model
        self._channels = model.slice_channels()
        self._units = units
        self._unit_of = {name: i for i, unit in enumerate(units) for name in unit.layers}

    def build(self, fineness: float) -> UnitRows:
        network, units = self._network, self._units
        numbers = [[network.place[name] for name in unit.layers] for unit in units]
        layer_s = np.array([self._problem.costs.layer_s[rows].sum(axis=0) for rows in numbers])
        weights = np.array([float(network.weight_bytes(unit.layers)) for unit in units])
        activations = [[network.activation_bytes(name) for name in unit.layers] for unit in units]
        repeated = np.array([self._repeated_bytes(unit) for unit in units])
        beta = np.array([float(sum(each)) for each in activations]) + weights
        devices = len(self._problem.devices)
        share = devices * np.maximum(
            layer_s.mean(axis=1) / max(layer_s.mean(axis=1).sum(), np.finfo(float).tiny),
            beta / max(beta.sum(), 1.0),
        )
        grains = [
            self._grains(unit, part, fineness) for unit, part in zip(units, share, strict=True)
        ]
        tensors, from_outside = self._tensors(np.array(grains))
        return UnitRows(
            units,
            np.array(grains, dtype=np.int16),
            np.array([self._problem.pinned[rows[0]] for rows in numbers]),
            np.array([unit.channels is None and unit.rows > 0 for unit in units]),
            layer_s,
            layer_s * np.array([self._halo_share(unit) for unit in units])[:, None],
            beta - repeated,
            repeated + from_outside,
            weights,
            np.array([float(max(each)) for each in activations]),
            tensors,
        )

    def _repeated_bytes(self, unit: Unit) -> float:
        """Return the bytes of Eq. 2 that every part repeats: the whole input, or the weights."""
        network = self._network
        if unit.channels is None:
            return float(network.weight_bytes(unit.layers)) if unit.rows else 0.0
        if unit.channels.is_channelwise:
            return 0.0
        return float(sum(network.tensors[x].bytes for x in network.layer[unit.layers[0]].inputs))

    def _grains(self, unit: Unit, share: float, fineness: float) -> int:
        if share <= fineness or unit.grains == 1:
            return 1
        wanted = int(min(unit.grains, np.ceil(share / fineness)))
        if unit.channels is None:
            return wanted
        return next(n for n in range(wanted, unit.grains + 1) if unit.grains % n == 0)

    def _halo_share(self, unit: Unit) -> float:
        """Return the work that one cut between two bands adds, relative to the whole unit's."""
        if unit.channels is not None or unit.rows < 2:
            return 0.0
        half = unit.rows // 2
        return max(0.0, self._model.fused(unit.layers).bands((half, unit.rows - half)).halo_share)

    def _tensors(self, grains: NDArray[np.integer]) -> tuple[Tensors, Floats]:
        """Return the tensors between units, and the bytes added by cutting inputs at readers."""
        network, unit_of = self._network, self._unit_of
        sizes: list[float] = []
        sources: list[int] = []
        readers: list[int] = []
        starts: list[int] = []
        needs_all: list[bool] = []
        cuts: list[tuple[int, int]] = []
        from_outside = np.zeros(len(self._units))
        for name, tensor in network.tensors.items():
            source = unit_of[network.producer[name]] if name in network.producer else -1
            reading = {unit_of[x] for x in network.consumers[name]} - {source}
            if not reading:
                continue
            starts.append(len(readers))
            for reader in sorted(reading):
                unit = self._units[reader]
                whole = self._needs_all(unit, name, source, grains)
                if unit.channels is None and unit.rows and grains[reader] > 1:
                    if whole:
                        from_outside[reader] += tensor.bytes
                    else:
                        cuts.append((len(sizes), reader))
                readers.append(reader)
                needs_all.append(whole)
            sizes.append(float(tensor.bytes))
            sources.append(source)
        return (
            Tensors(
                np.array(sizes),
                np.array(sources, dtype=np.intp),
                np.array(readers, dtype=np.intp),
                np.array(starts, dtype=np.intp),
                np.array(needs_all, dtype=bool),
                tuple(cuts),
            ),
            from_outside,
        )

    def _needs_all(self, unit: Unit, tensor: str, source: int, grains: NDArray[np.integer]) -> bool:
        if source < 0:
            return True
        if unit.channels is None:
            return self._units[source].channels is not None and bool(grains[source] > 1)
        reading = [x for x in unit.layers if tensor in self._network.layer[x].inputs]
        return not all(self._channels.get(x, Channels(0)).is_channelwise for x in reading)
