"""Equations 1–4 of Tang & Stefanov (2021), for whole populations and for one assignment.

β of a device (Eq. 2) is the weights of its layers (Eq. 3: every constant of a layer, biases
included; a weight that several layers share counts for each, as the sum over layers says) plus the
input and output tensors of every one of its layers (Eq. 4). It bounds the weights and activations
of a device from above and leaves out its channels. φ (Eq. 1), which the paper's genetic algorithm
minimises, sums |β_i − β_j| over all ordered pairs of devices.

All sizes are whole bytes and are added as float64, which is exact up to 2^53 bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network


def layer_beta_bytes(network: Network) -> NDArray[np.float64]:
    """Return each layer's term of Eq. 3 plus its term of Eq. 4, in bytes: float64 [layers]."""
    return np.array(
        [
            sum(network.weights[weight].bytes for weight in layer.weights)
            + network.activation_bytes(layer.name)
            for layer in network.layers
        ],
        dtype=np.float64,
    )


def beta_bytes(
    layer_beta: NDArray[np.float64], population: NDArray[np.integer], devices: int
) -> NDArray[np.float64]:
    """Return β (Eq. 2) of every device under every assignment: float64 [individuals, devices].

    >>> beta_bytes(np.array([5.0, 2.0, 1.0]), np.array([[0, 1, 1]]), devices=2)
    array([[5., 3.]])

    `layer_beta` is the result of `layer_beta_bytes`; `population` holds device numbers below
    `devices`, shape [individuals, layers].
    """
    individuals, layers = population.shape
    slots = population + (np.arange(individuals) * devices)[:, None]
    weights = np.broadcast_to(layer_beta, (individuals, layers))
    sums = np.bincount(slots.ravel(), weights.ravel(), minlength=individuals * devices)
    return np.asarray(sums.reshape(individuals, devices))


def phi(beta: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return φ (Eq. 1) of every row of `beta` [individuals, devices]: float64 [individuals].

    >>> phi(np.array([[5.0, 3.0]]))
    array([4.])

    With β sorted in ascending order, the k-th of n is added k times and subtracted n − 1 − k times
    over the unordered pairs, so the sum over ordered pairs is 2 Σ (2k + 1 − n) β_k.
    """
    devices = beta.shape[1]
    factors = 2.0 * (2 * np.arange(devices) + 1 - devices)
    return np.asarray(np.sort(beta, axis=1) @ factors)


def phi_lower_bound(layer_beta: NDArray[np.float64], devices: int) -> float:
    """Return a lower bound on φ over all assignments.

    >>> phi_lower_bound(np.array([1.0, 1.0, 1.0]), devices=2)
    2.0

    All sizes are multiples of their greatest common divisor g. Total/g units over n devices leave a
    remainder of r, so at best r devices have one unit more than the n − r others.
    """
    sizes = [int(size) for size in layer_beta]
    unit = math.gcd(*sizes) if sizes else 0
    if unit == 0:
        return 0.0
    remainder = (sum(sizes) // unit) % devices
    return 2.0 * remainder * (devices - remainder) * unit


def device_beta_bytes(
    network: Network, assignment: Mapping[str, str], devices: Sequence[str]
) -> dict[str, int]:
    """Return β (Eq. 2) of each device under one assignment (layer → device), in whole bytes."""
    beta = dict.fromkeys(devices, 0)
    for layer in network.layers:
        weights = sum(network.weights[weight].bytes for weight in layer.weights)
        beta[assignment[layer.name]] += weights + network.activation_bytes(layer.name)
    return beta
