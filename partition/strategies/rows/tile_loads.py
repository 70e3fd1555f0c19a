"""Estimates of the load that a tiling puts on each device, without rewriting the network.

Seconds and activations of a layer are in proportion to the rows that it makes (`Taken.work`); what
bands receive and send is priced as in the cost model, and so is firing them. What
the other layers send each other and channels that wait are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cnn.network import Tensor
from partition.prediction.engine_memory import engine_bytes
from partition.pricing.busy import period_s, shared_machines
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem

if TYPE_CHECKING:
    from cnn.rewrite.band_rows import Band

ROWS_AXIS = 2
"""As `cnn.operators.row_taking` has it, which needs ONNX."""


@dataclass(frozen=True)
class TileLoads:
    """Per device: seconds of work, seconds on the link, bytes held; and the period they allow."""

    busy_s: Floats
    link_s: Floats
    held_bytes: Floats
    period_s: float


class LoadEstimate:
    """The loads of tilings of one problem."""

    def __init__(self, problem: Problem) -> None:
        network = problem.network
        self._problem = problem
        self._shared = shared_machines(problem.devices)
        self._seconds = problem.costs.layer_s
        self._row = {layer.name: number for number, layer in enumerate(network.layers)}
        layers = network.layers
        self._weights = np.array([network.weight_bytes((layer.name,)) for layer in layers], float)
        self._activations = np.array([network.activation_bytes(layer.name) for layer in layers])

    def untiled_s(self, numbers: NDArray[np.intp], tiled: slice) -> Floats:
        """Return the seconds that each device spends on its layers by `numbers` without those of
        `tiled`."""
        mine = self._mine(numbers, tiled)
        return np.asarray((self._seconds * mine).sum(axis=0))

    def loads(
        self, numbers: NDArray[np.intp], tiled: slice, output: str, bands: Mapping[int, Band]
    ) -> TileLoads:
        """Estimate the loads with `bands` by device; `numbers` [layers] is for layers not
        `tiled`."""
        mine = self._mine(numbers, tiled)
        busy = (self._seconds * mine).sum(axis=0)
        held = self._weights @ mine
        largest = (self._activations[:, None] * mine).max(axis=0)
        phases = mine.any(axis=0).astype(float)
        for device, band in bands.items():
            rows = [self._row[name] for name in band.layers]
            work = np.array([float(taken.work) for taken in band.layers.values()])
            busy[device] += self._seconds[rows, device] @ work
            held[device] += self._weights[rows].sum()
            largest[device] = max(largest[device], (self._activations[rows] * work).max())
            phases[device] += 1
        moved = self._moved(numbers, output, bands)
        received, sent = moved.received_bytes[:, None], moved.sent_bytes[:, None]
        through, rates = received + sent, self._problem.costs.rates
        phases_s = rates.phases_s(busy[:, None], through, rates.uncached_bytes(held[:, None]))
        busy_s = rates.busy_s(phases_s, phases[:, None], moved.messages[:, None], through)
        link_s = rates.link_s(sent, received)
        period = period_s(self._shared, busy_s, link_s)
        held_bytes = held + largest + engine_bytes(1)
        return TileLoads(busy_s[:, 0], link_s[:, 0], held_bytes, float(period[0]))

    def _mine(self, numbers: NDArray[np.intp], tiled: slice) -> NDArray[np.bool_]:
        mine = numbers[:, None] == np.arange(len(self._problem.devices))
        mine[tiled] = False
        return np.asarray(mine)

    def _moved(self, numbers: NDArray[np.intp], output: str, bands: Mapping[int, Band]) -> _Moved:
        """What moves for the bands' sake if only the rows that each needs come to it."""
        network = self._problem.network
        moved = _Moved(*(np.zeros(len(self._problem.devices)) for _ in range(3)))
        readers = {int(numbers[self._row[layer]]) for layer in network.consumers[output]}
        for device, band in bands.items():
            made = _row_bytes(network.tensors[output]) * band.rows.count
            entering = [_row_bytes(network.tensors[x]) * n.count for x, n in band.received.items()]
            away = list(readers - {device})
            sent = len(away) + (output in network.outputs)
            moved.received_bytes[device] += sum(entering)
            moved.received_bytes[away] += made
            moved.sent_bytes[device] += made * sent
            moved.messages[device] += len(entering) + sent
            moved.messages[away] += 1
        return moved


@dataclass(frozen=True)
class _Moved:
    """Per device: bytes and messages."""

    received_bytes: Floats
    sent_bytes: Floats
    messages: Floats


def _row_bytes(tensor: Tensor) -> float:
    return tensor.bytes / tensor.shape[ROWS_AXIS]
