"""What a tiling asks of each device, estimated without rewriting the network.

Seconds and activations of a layer are in proportion to the rows that it makes (`Taken.work`), and
each band receives and sends its rows of what enters and leaves the tiled layers. Waiting channels
and transfers between the other layers are left out; the cost model counts them later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cnn.network import Tensor
from partition.engine_memory import engine_bytes
from partition.strategies.base import Problem
from partition.traffic import Floats

if TYPE_CHECKING:
    from cnn.band_rows import Band

ROWS_AXIS = 2
"""As `cnn.row_taking` has it, which needs ONNX."""


@dataclass(frozen=True)
class Loads:
    """Per device: seconds of work, seconds on the link in its busier direction, bytes held."""

    busy_s: Floats
    link_s: Floats
    held_bytes: Floats

    @property
    def period_s(self) -> float:
        """The shortest period that they allow."""
        return float(np.maximum(self.busy_s, self.link_s).max())


class LoadEstimate:
    """The loads of tilings of one problem."""

    def __init__(self, problem: Problem) -> None:
        network = problem.network
        self._problem = problem
        self._seconds = problem.costs.layer_s
        self._row = {layer.name: number for number, layer in enumerate(network.layers)}
        layers = network.layers
        self._weights = np.array([network.weight_bytes((layer.name,)) for layer in layers], float)
        self._activations = np.array([network.activation_bytes(layer.name) for layer in layers])

    def untiled_s(self, numbers: NDArray[np.intp], tiled: slice) -> Floats:
        """Seconds [devices] that each spends on its layers by `numbers`, those of `tiled` apart."""
        mine = self._mine(numbers, tiled)
        return np.asarray((self._seconds * mine).sum(axis=0))

    def loads(
        self, numbers: NDArray[np.intp], tiled: slice, output: str, bands: Mapping[int, Band]
    ) -> Loads:
        """`bands` by device; `numbers` [layers] has the devices of layers that are not `tiled`."""
        mine = self._mine(numbers, tiled)
        busy = (self._seconds * mine).sum(axis=0)
        held = self._weights @ mine
        largest = (self._activations[:, None] * mine).max(axis=0)
        received, sent = self._moved(numbers, output, bands)
        for device, band in bands.items():
            rows = [self._row[name] for name in band.layers]
            work = np.array([float(taken.work) for taken in band.layers.values()])
            busy[device] += self._seconds[rows, device] @ work
            held[device] += self._weights[rows].sum()
            largest[device] = max(largest[device], (self._activations[rows] * work).max())
        link = np.maximum(received, sent)
        for number, described in enumerate(self._problem.devices):
            if not described.wire_is_free:
                busy[number] += (received[number] + sent[number]) * described.wire_s_per_byte
            link[number] /= described.link_bytes_per_s
        return Loads(busy, link, held + largest + engine_bytes(1))

    def _mine(self, numbers: NDArray[np.intp], tiled: slice) -> NDArray[np.bool_]:
        mine = numbers[:, None] == np.arange(len(self._problem.devices))
        mine[tiled] = False
        return np.asarray(mine)

    def _moved(
        self, numbers: NDArray[np.intp], output: str, bands: Mapping[int, Band]
    ) -> tuple[Floats, Floats]:
        """Bytes received and sent by each device for the bands' sake."""
        network = self._problem.network
        received, sent = (np.zeros(len(self._problem.devices)) for _ in range(2))
        readers = {int(numbers[self._row[layer]]) for layer in network.consumers[output]}
        row_bytes = _row_bytes(network.tensors[output])
        for device, band in bands.items():
            for name, rows in band.received.items():
                received[device] += _row_bytes(network.tensors[name]) * rows.count
            away = readers - {device}
            sent[device] += row_bytes * band.rows.count * (len(away) + (output in network.outputs))
            received[list(away)] += row_bytes * band.rows.count
        return received, sent


def _row_bytes(tensor: Tensor) -> float:
    return tensor.bytes / tensor.shape[ROWS_AXIS]
