"""Power of devices while they compute single layers, where it was measured.

A device's `busy_w` is a mean over the whole network. A layer bound by arithmetic takes more than
one bound by memory, so a plan that moves layers between devices moves watts with them. Measurements
replace `busy_w` for the seconds of the layers that they are of; messages, firings and all other
layers keep it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network
from partition.devices import Device

LayerWatts: TypeAlias = Mapping[str, Mapping[str, float]]
"""Device → layer of the network as it was read → watts. The parts of a layer have its watts."""


def surplus_w(
    network: Network, devices: Sequence[Device], layer_w: LayerWatts
) -> NDArray[np.float64]:
    """Return the watts beyond a device's `busy_w` while it computes each layer: [layers, devices].

    They are 0 where no power was measured.
    """
    return np.array(
        [[_watts(layer, device, layer_w) - device.busy_w for device in devices]
         for layer in network.layers]
    )  # fmt: skip


def phase_w(
    layers: Sequence[Layer], seconds: Sequence[float], device: Device, layer_w: LayerWatts
) -> float | None:
    """Return the mean watts of a device while it computes `layers`, which take `seconds` each.

    The result is None if nothing was measured on the device.

    >>> layers = [Layer("conv", "Conv", (), ()), Layer("relu", "Relu", (), ())]
    >>> phase_w(layers, [3.0, 1.0], Device("a", busy_w=6.0), {"a": {"conv": 10.0}})
    9.0
    """
    if device.name not in layer_w or not sum(seconds):
        return None
    watts = [_watts(layer, device, layer_w) for layer in layers]
    return float(np.average(watts, weights=seconds))


def _watts(layer: Layer, device: Device, layer_w: LayerWatts) -> float:
    return layer_w.get(device.name, {}).get(layer.part_of or layer.name, device.busy_w)
