"""What an assignment costs, for whole populations at once: the numbers that strategies search by.

`CostModel` turns a network and devices into arrays once; `CostModel.evaluate` then prices thousands
of assignments with array operations. It counts exactly what a plan's prediction counts
(`partition.timing`, `partition.memory`) wherever that follows from the assignment alone: layers'
compute times, tensors sent and received (a tensor travels once to each device that reads it), the
processor time that this costs, weights. What needs the phases is estimated: their number by the
pairs of a device and a level (levels as in `csdf.grouping`, whose hoisting can only merge such
pairs, so there are never more), a channel's capacity by the difference of its ends' levels, and the
live activations by the largest layer.

Sizes are whole bytes carried as float64, exact up to 2^53.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.compute_time import layer_seconds
from partition.devices import Device
from partition.engine_memory import START_UP_BYTES, engine_bytes
from partition.traffic import SLACK_FRAMES, Assignments, Floats, Flows, Traffic


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of `I` assignments on `D` devices; all arrays are float64.

    `busy_s` is what a device's processor does per frame: layers, firings and, unless its wire is
    free, sending and receiving. `wire_bytes` [I] counts every tensor that leaves a device or the
    launcher, once per device that it goes to. `memory_bytes` estimates what each device holds,
    `overrun_bytes` [I] sums what exceeds the devices' limits: 0 where everything fits.
    """

    period_s: Floats
    compute_s: Floats
    busy_s: Floats
    sent_bytes: Floats
    received_bytes: Floats
    wire_bytes: Floats
    weight_bytes: Floats
    memory_bytes: Floats
    overrun_bytes: Floats
    phases: Floats


class CostModel:
    """The costs of any assignment of `network`'s layers to `devices` (both non-empty).

    `layer_s` [layers, devices] replaces the estimate of `partition.compute_time`; channels between
    devices hold `slack_frames` frames beyond what their skews need.
    """

    def __init__(
        self,
        network: Network,
        devices: Sequence[Device],
        layer_s: Floats | None = None,
        slack_frames: int = SLACK_FRAMES,
    ) -> None:
        self.network = network
        self.devices = tuple(devices)
        self.layer_s = layer_seconds(network, devices) if layer_s is None else layer_s
        self._rows = _LayerRows(network)
        self._traffic = Traffic(network, slack_frames)
        self._hosts = _host_numbers(self.devices)

    def evaluate(self, population: Assignments) -> Costs:
        """Price every row of `population` [individuals, layers]."""
        device_of = np.ascontiguousarray(population.T)
        levels = self._traffic.levels(device_of)
        individuals = device_of.shape[1]
        shape = (len(self.devices), individuals)
        compute, weights, activations, phases = (np.zeros(shape) for _ in range(4))
        for number in range(len(self.devices)):
            mine = device_of == number
            compute[number] = self.layer_s[:, number] @ mine
            weights[number] = self._rows.weights(mine)
            activations[number] = self._rows.largest_activation(mine)
            phases[number] = _distinct_levels(levels, mine)
        flows = self._traffic.flows(device_of, levels, self._hosts)
        busy, period = self._times(compute, phases, flows)
        most = int(phases.max())
        engine = np.array([engine_bytes(count) for count in range(most + 1)])[phases.astype(int)]
        tensors = weights + activations + flows.held_bytes
        memory = np.maximum(tensors + engine, START_UP_BYTES)
        return Costs(
            period,
            compute.T,
            busy.T,
            flows.sent_bytes.T,
            flows.received_bytes.T,
            flows.wire_bytes,
            weights.T,
            memory.T,
            self._overrun(memory),
            phases.T,
        )

    def _times(self, compute: Floats, phases: Floats, flows: Flows) -> tuple[Floats, Floats]:
        column = {
            key: np.array([[getattr(device, key)] for device in self.devices], dtype=np.float64)
            for key in ("firing_s", "wire_s_per_message", "wire_s_per_byte", "link_bytes_per_s")
        }
        serves = np.array([[not device.wire_is_free] for device in self.devices])
        wire = (
            flows.messages * column["wire_s_per_message"]
            + (flows.sent_bytes + flows.received_bytes) * column["wire_s_per_byte"]
        )
        busy = compute + phases * column["firing_s"] + serves * wire
        link = np.maximum(flows.link_sent_bytes, flows.link_received_bytes)
        period = np.maximum(busy, link / column["link_bytes_per_s"]).max(axis=0)
        for host in np.unique(self._hosts):
            members = self._hosts == host
            cores = max(d.host_cores for d, own in zip(self.devices, members, strict=True) if own)
            if members.sum() > cores:
                period = np.maximum(period, busy[members].sum(axis=0) / cores)
        return busy, period

    def _overrun(self, memory: Floats) -> Floats:
        overrun = np.zeros(memory.shape[1])
        for device, held in zip(self.devices, memory, strict=True):
            if device.memory_bytes is not None:
                overrun += np.maximum(held - device.memory_bytes, 0.0)
        return overrun


class _LayerRows:
    """Weights (a shared one counts once per device) and activations, layer by layer."""

    def __init__(self, network: Network) -> None:
        users: dict[str, list[int]] = {}
        for number, layer in enumerate(network.layers):
            for weight in dict.fromkeys(layer.weights):
                users.setdefault(weight, []).append(number)
        self._own = np.zeros(len(network.layers))
        self._shared: list[tuple[float, list[int]]] = []
        for weight, layers in users.items():
            size = float(network.weights[weight].bytes)
            if len(layers) == 1:
                self._own[layers[0]] += size
            else:
                self._shared.append((size, layers))
        self._activations = np.array(
            [[network.activation_bytes(layer.name)] for layer in network.layers], dtype=np.float64
        )

    def weights(self, mine: NDArray[np.bool_]) -> Floats:
        """Bytes of weights of the layers in `mine` [layers, individuals]."""
        held: Floats = self._own @ mine
        for size, layers in self._shared:
            held = held + size * mine[layers].any(axis=0)
        return held

    def largest_activation(self, mine: NDArray[np.bool_]) -> Floats:
        """Largest inputs + outputs of any one layer in `mine`."""
        return np.asarray((self._activations * mine).max(axis=0))


def _distinct_levels(levels: NDArray[np.int32], mine: NDArray[np.bool_]) -> Floats:
    """Number of different levels among the layers in `mine`, for each individual."""
    top = int(levels.max(initial=0)) + 1
    seen = np.zeros((top, levels.shape[1]), dtype=bool)
    rows, columns = np.nonzero(mine)
    seen[levels[rows, columns], columns] = True
    return np.asarray(seen.sum(axis=0), dtype=np.float64)


def _host_numbers(devices: Sequence[Device]) -> NDArray[np.intp]:
    """A number per machine; a device without a `host` is a machine of its own."""
    names = [
        f"alone {number}" if device.host is None else f"host {device.host}"
        for number, device in enumerate(devices)
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.intp)
