"""How long each layer takes on each device: an analytic estimate, until measured times replace it.

A layer takes as long as its arithmetic or its memory traffic needs, whichever is more (the roofline
model): max(multiply-accumulates / `macs_per_s`, bytes of tensors and weights touched /
`memory_bytes_per_s`). Depthwise convolutions and element-wise layers are bound by their bytes,
ordinary convolutions by their arithmetic. Cutting a region out of a tensor touches that region
only. The estimate knows nothing of how an engine fuses
layers: `planner.with_measured_phases` replaces it by the times that a plan's own subnets take.

Source: S. Williams et al., "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM, 2009.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network
from partition.devices import Device

VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Dropout"})
"""Operators that engines carry out without touching their data."""


def layer_seconds(network: Network, devices: Sequence[Device]) -> NDArray[np.float64]:
    """Estimated seconds per frame of every layer on every device: float64 [layers, devices]."""
    macs = np.array([layer.macs for layer in network.layers], dtype=np.float64)
    touched = np.array([_touched_bytes(network, layer) for layer in network.layers], np.float64)
    arithmetic = macs[:, None] / np.array([device.macs_per_s for device in devices])
    traffic = touched[:, None] / np.array([device.memory_bytes_per_s for device in devices])
    return np.asarray(np.maximum(arithmetic, traffic))


def _touched_bytes(network: Network, layer: Layer) -> int:
    if layer.operator in VIEWS:
        return 0
    if layer.operator == "Slice":
        return 2 * sum(network.tensors[name].bytes for name in layer.outputs)
    return network.activation_bytes(layer.name) + network.weight_bytes((layer.name,))
