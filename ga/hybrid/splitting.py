"""Conversion of a state of `ga.hybrid.shares` to rewrites and a device for every part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network
from cnn.rewrite.rewrites import Rewrite, part_name
from ga.hybrid.unit_rows import UnitRows
from partition.pricing.rewriting import apply_rewrites
from partition.strategies.base import Problem, Rewritable


@dataclass(frozen=True)
class Split:
    """A problem after `rewrites`, and a device for each of its layers: `numbers` [layers]."""

    rewrites: tuple[Rewrite, ...]
    problem: Problem
    numbers: NDArray[np.intp]


def carry_out(
    problem: Problem, model: Rewritable, rows: UnitRows, state: NDArray[np.int16]
) -> Split:
    """Split the units of `state` [units, devices] and put every part on its device.

    Parts are as large as their grains and in the order of the devices. A device whose grains are
    not worth a channel or a row gets none.
    """
    rewrites: list[Rewrite] = []
    device: dict[str, int] = {}
    for unit, grains in zip(rows.units, state, strict=True):
        holders = np.flatnonzero(grains)
        if len(holders) > 1:
            sizes = unit.divide(grains[holders].astype(float).tolist())
            holders = holders[np.array(sizes) > 0]
            if len(holders) > 1:
                rewrites += unit.rewrites([size for size in sizes if size])
        for layer in unit.layers:
            for number, holder in enumerate(holders, start=1):
                device[part_name(layer, number, len(holders))] = int(holder)
    split = apply_rewrites(problem, model, rewrites) if rewrites else problem
    return Split(tuple(rewrites), split, _placed(split.network, device))


def _placed(network: Network, device: Mapping[str, int]) -> NDArray[np.intp]:
    """A device for each layer: that of `device`, and for what rewrites have added, that of all it
    reads if this is on one device, so that only what it makes has to travel; else a reader's."""
    known = dict(device)
    added = [layer for layer in network.layers if layer.name not in known]
    for layer in added:
        makers = {known.get(network.producer.get(tensor, "")) for tensor in layer.inputs}
        if len(makers) == 1:
            (maker,) = makers
            if maker is not None:
                known[layer.name] = maker
    for layer in reversed(added):
        known.setdefault(layer.name, _reader(network, known, layer))
    return np.array([known[layer.name] for layer in network.layers], dtype=np.intp)


def _reader(network: Network, known: Mapping[str, int], layer: Layer) -> int:
    readers = (name for tensor in layer.outputs for name in network.consumers[tensor])
    found = next((known[name] for name in readers if name in known), None)
    if found is not None:
        return found
    makers = (network.producer.get(tensor, "") for tensor in layer.inputs)
    return next((known[name] for name in makers if name in known), 0)
