"""Weights and activations of any selection of layers, for whole populations at once.

A weight that several layers share (bands of rows of one layer do) counts once per device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.prediction.memory import packing_bytes, quantised_bytes
from partition.pricing.traffic import Floats


class LayerRows:
    """Weights and activations of a network's layers, in bytes as float64."""

    def __init__(self, network: Network) -> None:
        users: dict[str, list[int]] = {}
        for number, layer in enumerate(network.layers):
            for weight in dict.fromkeys(layer.weights):
                users.setdefault(weight, []).append(number)
        self._own = np.zeros(len(network.layers))
        together: dict[tuple[int, ...], float] = {}
        for weight, layers in users.items():
            size = float(network.weights[weight].bytes)
            if len(layers) == 1:
                self._own[layers[0]] += size
            else:
                together[tuple(layers)] = together.get(tuple(layers), 0.0) + size
        self._shared = np.array(list(together.values()))
        self._users = np.array([number for layers in together for number in layers], dtype=np.intp)
        self._starts = np.cumsum([0, *(len(layers) for layers in together)])[:-1]
        self._activations = np.array(
            [[network.activation_bytes(layer.name)] for layer in network.layers], dtype=np.float64
        )
        self._packing = np.array(
            [[packing_bytes(network, (layer.name,))] for layer in network.layers], dtype=np.float64
        )
        self._quantised = np.array(
            [quantised_bytes(network, (layer.name,)) for layer in network.layers], dtype=np.float64
        )

    def weights(self, mine: NDArray[np.bool_]) -> Floats:
        """Sum the bytes of weights of the layers in `mine` [layers, individuals]."""
        held: Floats = self._own @ mine
        if len(self._shared):
            held += self._shared @ np.logical_or.reduceat(mine[self._users], self._starts, axis=0)
        return held

    def largest_activation(self, mine: NDArray[np.bool_]) -> Floats:
        """Return the largest sum of inputs and outputs of any one layer in `mine`."""
        return np.asarray((self._activations * mine).max(axis=0))

    def packing(self, mine: NDArray[np.bool_]) -> Floats:
        """Return the bytes that packing takes while the layers in `mine` are loaded."""
        return np.asarray((self._packing * mine).max(axis=0) + self._quantised @ mine)
