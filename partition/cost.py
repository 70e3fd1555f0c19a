"""What an assignment costs, for whole populations at once: the numbers that strategies search by.

`CostModel` turns a network and devices into arrays once; `CostModel.evaluate` then prices thousands
of assignments with array operations. It counts what a plan's prediction counts
(`partition.phase_time`, `partition.timing`, `partition.memory`, `partition.energy`). Equal to it,
because it follows from the assignment alone:

- what layers take to compute, and to fetch the weights that exceed a cache;
- tensors sent and received (a tensor travels once to each device that reads it), and the processor
  time that this costs; weights.

Estimated, because it needs the phases:

- **phases** by the pairs of a device and a level (levels as in `csdf.grouping`). Hoisting can only
  merge such pairs, so there are never more phases, and what firings and cutting
  (`partition.phase_time`) cost, and with them period and energy, is never more than estimated.
- **latency** by the fewest periods in which a frame can pass all boundaries. Skews that hold fewer
  bytes may take more.
- **the launcher's link** by one device that reads the frame.
- **memory**: a channel's capacity by the difference of its ends' levels, the live activations by
  the largest layer.

Sizes are whole bytes carried as float64, exact up to 2^53.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.busy import rate_columns
from partition.compute_time import layer_seconds
from partition.devices import Device, launcher_s
from partition.engine_memory import LAYER_BYTES, START_UP_BYTES, engine_bytes
from partition.layer_rows import LayerRows
from partition.traffic import SLACK_FRAMES, Assignments, Floats, Flows, Ints, Traffic

LEAST_LATENCY_PERIODS = 2
"""Periods from a frame's departure to its result with no boundary between devices: one for the way
there, one for the work."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of `I` assignments on `D` devices; all arrays are float64 [I, D] but where noted.

    `period_s` [I] and `latency_s` [I] are those of a saturated pipeline, as a plan tells them.
    `compute_s` is the time of a device's layers and `cut_s` what cutting costs on top, together the
    time of its phases; `busy_s` is all that its processor does per frame: phases, firings and,
    unless its wire is free, sending and receiving. `wire_bytes` [I] counts every tensor that leaves
    a device or the launcher, once per device that it goes to. `cache_overrun_bytes` are the weights
    that a device's cache has no room for. `tensor_bytes` estimates what each device holds of
    weights, activations and channels, `memory_bytes` all that it holds,
    `overrun_bytes` [I] sums what exceeds the devices' limits: 0 where everything fits. `energy_j`
    [I] is joules per frame of all devices that have layers.
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
    latency_s: Floats
    energy_j: Floats
    cache_overrun_bytes: Floats
    cut_s: Floats
    tensor_bytes: Floats


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
        self._rows = LayerRows(network)
        self._traffic = Traffic(network, slack_frames)
        self._hosts = _host_numbers(self.devices)
        self._machines = _shared_machines(self.devices, self._hosts)
        self._column = _columns(self.devices)
        self._rates = rate_columns(self.devices)
        given, results = (
            sum(network.tensors[name].bytes for name in ends)
            for ends in (network.inputs, network.outputs)
        )
        everywhere = all(device.launcher_bytes_per_s is not None for device in self.devices)
        self._launcher_s = launcher_s(self.devices, given, results) if everywhere else 0.0

    def evaluate(self, population: Assignments) -> Costs:
        """Price every row of `population` [individuals, layers]."""
        device_of = np.ascontiguousarray(population.T, dtype=np.int16)
        levels = self._traffic.levels(device_of)
        individuals = device_of.shape[1]
        shape = (len(self.devices), individuals)
        compute, weights, activations, packing, kernels = (np.zeros(shape) for _ in range(5))
        for number in range(len(self.devices)):
            mine = device_of == number
            compute[number] = self.layer_s[:, number] @ mine
            weights[number] = self._rows.weights(mine)
            activations[number] = self._rows.largest_activation(mine)
            packing[number] = self._rows.packing(mine)
            kernels[number] = LAYER_BYTES * mine.sum(axis=0)
        phases = _phases(device_of, levels, len(self.devices))
        flows = self._traffic.flows(device_of, levels, self._hosts)
        uncached = np.maximum(weights - self._column["cache_bytes"], 0.0)
        compute += uncached * self._rates.cache_s_per_byte
        cutting = flows.cut_bytes * self._rates.cut_s_per_byte
        busy, period = self.times(compute + cutting, phases, flows)
        most = int(phases.max())
        engine = np.array([engine_bytes(count) for count in range(most + 1)])[phases.astype(int)]
        tensors = weights + activations + flows.held_bytes
        memory = np.maximum(tensors + engine + kernels, START_UP_BYTES + packing)
        return Costs(
            period,
            compute.T,
            busy.T,
            flows.sent_bytes.T,
            flows.received_bytes.T,
            flows.wire_bytes,
            weights.T,
            memory.T,
            self.overrun(memory),
            phases.T,
            period * (levels.max(axis=0) + LEAST_LATENCY_PERIODS),
            self._energy(busy, period, flows, phases),
            uncached.T,
            cutting.T,
            tensors.T,
        )

    def times(self, compute: Floats, phases: Floats, flows: Flows) -> tuple[Floats, Floats]:
        """What processors do per frame [devices, individuals], and the period [individuals].

        `compute` is the time of a device's phases, `phases` their number: [devices, individuals].
        """
        column, moved = self._column, flows.sent_bytes + flows.received_bytes
        busy = self._rates.busy_s(compute, phases, flows.messages, moved)
        link = np.maximum(flows.link_sent_bytes, flows.link_received_bytes)
        period = np.maximum(busy, link / column["link_bytes_per_s"]).max(axis=0)
        period = np.maximum(period, self._launcher_s)
        for members, cores in self._machines:
            period = np.maximum(period, busy[members].sum(axis=0) / cores)
        return busy, period

    def _energy(self, busy: Floats, period: Floats, flows: Flows, phases: Floats) -> Floats:
        """As `partition.energy.energy_j`."""
        column = self._column
        waiting = np.maximum(period - busy, 0.0)
        spent = busy * column["busy_w"] + waiting * column["idle_w"]
        spent += flows.sent_bytes * column["sent_j_per_byte"]
        return np.asarray((spent * (phases > 0)).sum(axis=0))

    def overrun(self, memory: Floats) -> Floats:
        """Bytes of `memory` [devices, individuals] beyond the devices' limits: [individuals]."""
        overrun = np.zeros(memory.shape[1])
        for device, held in zip(self.devices, memory, strict=True):
            if device.memory_bytes is not None:
                overrun += np.maximum(held - device.memory_bytes, 0.0)
        return overrun


def _phases(device_of: Assignments, levels: Ints, devices: int) -> Floats:
    """How many different levels the layers of each device have: [devices, individuals]."""
    individuals = device_of.shape[1]
    seen = np.zeros((devices, int(levels.max(initial=0)) + 1, individuals), dtype=bool)
    seen[device_of, levels, np.arange(individuals)] = True
    return np.asarray(seen.sum(axis=1), dtype=np.float64)


def _host_numbers(devices: Sequence[Device]) -> NDArray[np.intp]:
    """A number per machine; a device without a `host` is a machine of its own."""
    names = [
        f"alone {number}" if device.host is None else f"host {device.host}"
        for number, device in enumerate(devices)
    ]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.intp)


def _shared_machines(
    devices: Sequence[Device], hosts: NDArray[np.intp]
) -> list[tuple[NDArray[np.bool_], int]]:
    """The devices on each machine that has more of them than cores, and its cores."""
    found = []
    for host in np.unique(hosts):
        members = hosts == host
        cores = max(d.host_cores for d, own in zip(devices, members, strict=True) if own)
        if members.sum() > cores:
            found.append((members, cores))
    return found


def _columns(devices: Sequence[Device]) -> dict[str, Floats]:
    """What devices are like, one array [devices, 1] per figure; no cache is an endless one."""
    keys = (
        "link_bytes_per_s", "busy_w", "idle_w", "sent_j_per_byte",
    )  # fmt: skip
    column = {key: np.array([[float(getattr(d, key))] for d in devices]) for key in keys}
    rooms = [np.inf if d.cache_bytes is None else float(d.cache_bytes) for d in devices]
    column["cache_bytes"] = np.array(rooms)[:, None]
    return column
