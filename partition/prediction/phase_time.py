"""Estimates of how long each phase of a dataflow takes, from the times of its layers.

The layers' seconds, and two things that depend on how the network is divided:

**Cutting.** An engine fuses layers and keeps tensors in a layout of its own. A tensor that enters
or leaves a phase breaks a fusion, is converted and leaves the caches: it costs its bytes times the
device's `cut_s_per_byte`, once for each device that reads it (in the phase that reads it first) and
once where it is made. Of the terms tried (a constant per phase, per tensor, per byte) only that per
byte is needed: ONNX Runtime 1.31 on five networks in 1 to 259 phases takes 0.11 ns per byte, which
leaves 2 ms (rms) of what cutting costs unexplained, where whole networks take 8 to 292 ms
(`python -m benchmarks.cutting`).

**Cache.** Weights that a device's cache has no room for are fetched anew for each frame
(`Device.cache_s_per_byte`); its phases share that time by their weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from csdf.conversion.from_network import HOST, SOURCE, Dataflow
from partition.devices import Device
from partition.pricing.busy import rates_of
from partition.pricing.compute_time import layer_seconds


def phase_seconds(
    dataflow: Dataflow, devices: Sequence[Device], layer_s: NDArray[np.float64] | None = None
) -> dict[str, float]:
    """Return by phase name the estimated seconds per frame on its device.

    `layer_s` [layers, devices] replaces the estimate of `partition.pricing.compute_time`.
    """
    seconds = layer_seconds(dataflow.network, devices) if layer_s is None else layer_s
    row = {layer.name: number for number, layer in enumerate(dataflow.network.layers)}
    column = {device.name: number for number, device in enumerate(devices)}
    rates = {device.name: rates_of(device) for device in devices}
    cut, uncached = cut_bytes(dataflow), _uncached_bytes(dataflow, devices)
    return {
        phase.name: float(
            rates[phase.device].phases_s(
                sum(float(seconds[row[layer], column[phase.device]]) for layer in phase.layers),
                cut[phase.name],
                uncached[phase.name],
            )
        )
        for phase in dataflow.phases
    }


def cut_bytes(dataflow: Dataflow) -> dict[str, int]:
    """Return by phase name the bytes that enter or leave it; what a device reads twice counts
    once."""
    cut = {phase.name: 0 for phase in dataflow.phases}
    leaving: set[tuple[str, str]] = set()
    for flow in dataflow.flows:
        if flow.target_device != HOST:
            cut[flow.targets[0]] += flow.tensor.bytes
        if flow.source != SOURCE and (flow.source, flow.tensor.name) not in leaving:
            leaving.add((flow.source, flow.tensor.name))
            cut[flow.source] += flow.tensor.bytes
    return cut


def _uncached_bytes(dataflow: Dataflow, devices: Sequence[Device]) -> dict[str, float]:
    """Return by phase name its share of the weights that its device's cache has no room for."""
    found = {phase.name: 0.0 for phase in dataflow.phases}
    network = dataflow.network
    for device in devices:
        phases = dataflow.devices.get(device.name, ())
        held = network.weight_bytes({layer for phase in phases for layer in phase.layers})
        uncached = rates_of(device).uncached_bytes(held)
        own = {phase.name: network.weight_bytes(phase.layers) for phase in phases}
        for name, size in own.items():
            found[name] = uncached * size / max(sum(own.values()), 1)
    return found
