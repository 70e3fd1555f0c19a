"""The costs of whole populations of assignments, which strategies minimise.

`CostModel` turns a network and devices into arrays once; `CostModel.evaluate` then prices thousands
of assignments with array operations. It counts the same costs as a plan's prediction
(`partition.prediction.timing`, `partition.prediction.memory`). These follow from the assignment
alone and are equal to the prediction:

- the seconds of layers, and of fetching the weights that exceed a cache;
- tensors sent and received (a tensor travels once to each device that reads it), and the processor
  time that this costs;
- weights. A weight that several layers share (bands of rows of one layer do) counts once per
  device.

The others depend on the phases and are estimates:

- **phases** by the pairs of a device and a level (levels as in `csdf.conversion.grouping`), in each
  connected component of the network. Hoisting can only merge such pairs, so the phases, and with
  them the cost of firings and cuts, the period and the energy, are never more than estimated.
- **latency** by the fewest periods in which a frame can pass all boundaries. Skews that hold fewer
  bytes may take more.
- **the launcher's link** by one device that reads the frame.
- **memory**: a channel's capacity by the difference of its ends' levels and the times of the layers
  on these levels, the live activations by the largest layer and the tensors that pass it.

Sizes are whole bytes carried as float64, exact up to 2^53.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from cnn.network import Network
from partition.devices import Device, launcher_s, machines
from partition.pricing.busy import period_s, rate_columns, shared_machines
from partition.pricing.compute_time import layer_seconds
from partition.pricing.layer_power import LayerWatts, surplus_w
from partition.pricing.memory_budget import (
    START_UP_BYTES,
    engines_bytes,
    packing_bytes,
    quantised_bytes,
)
from partition.pricing.spill import uncached_bytes
from partition.pricing.traffic import (
    SLACK_FRAMES,
    Assignments,
    Durations,
    Floats,
    Flows,
    Ints,
    Traffic,
    margin_periods,
)


class LayerRows:
    """Weights and activations of a network's layers, in bytes as float64."""

    def __init__(self, network: Network, live_bytes: Floats | None = None) -> None:
        """`live_bytes` [layers]: see `CostModel`."""
        sizes = network.bytes_by_readers
        every = range(len(network.layers))
        self._own = np.array([sizes.get((place,), 0) for place in every], dtype=np.float64)
        together = [places for places in sizes if len(places) > 1]
        self._shared = np.array([sizes[places] for places in together], dtype=np.float64)
        self._users = np.array([place for places in together for place in places], dtype=np.intp)
        self._starts = np.cumsum([0, *(len(layers) for layers in together)])[:-1]
        live = network.layer_activation_bytes if live_bytes is None else live_bytes
        self._live = np.array(live, dtype=np.float64)[:, None]
        self._passing = _Passing(network)
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

    def live(self, device_of: Assignments) -> Floats:
        """Return the bytes alive while each layer runs: [layers, individuals], see `_Passing`."""
        return self._passing.bytes(device_of) + self._live

    def packing(self, mine: NDArray[np.bool_]) -> Floats:
        """Return the bytes that packing takes while a device loads the layers in `mine`."""
        return np.asarray((self._packing * mine).max(axis=0) + self._quantised @ mine)


class _Passing:
    """Tensors that are alive on a device while it computes a layer that neither reads nor makes
    them, such as the shortcut around a residual block.

    A tensor passes a layer if the device has computed its producer, and needs it later or is to
    send it on; or if the device has read it for an earlier layer and reads it again for a later
    one. Phases play no part here, so a tensor that waits between two phases of a device counts too.
    """

    def __init__(self, network: Network) -> None:
        number = network.place
        passed: list[tuple[int, int, int, float]] = []
        for name, readers in network.consumers.items():
            producer = number.get(network.producer.get(name, ""), -1)
            users = sorted({number[reader] for reader in readers} | {producer} - {-1})
            for before, after in itertools.pairwise(users):
                needed = before if before == producer else after
                size = float(network.tensors[name].bytes)
                passed += [(layer, before, needed, size) for layer in range(before + 1, after)]
        passed.sort()
        columns = np.array([row[:3] for row in passed], dtype=np.intp).reshape(-1, 3)
        self._layer, self._before, self._needed = np.ascontiguousarray(columns.T)
        self._bytes = np.array([row[3] for row in passed])[:, None]
        self._passed, self._starts = np.unique(self._layer, return_index=True)

    def bytes(self, device_of: Assignments) -> Floats:
        """Return the bytes that pass each layer: [layers, individuals]."""
        total = np.zeros(device_of.shape)
        if len(self._layer):
            own = device_of[self._layer]
            alive = (device_of[self._before] == own) & (device_of[self._needed] == own)
            total[self._passed] = np.add.reduceat(self._bytes * alive, self._starts, axis=0)
        return total


LEAST_LATENCY_PERIODS = 2
"""Periods from a frame's departure to its result if there is no boundary between devices: one for
the transfer there, one for the work."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of `I` assignments on `D` devices; arrays are float64 [I, D] unless stated
    otherwise.

    - `period_s` [I] and `latency_s` [I] are those of a saturated pipeline, as a plan predicts them.
    - `compute_s` is the time of a device's layers, and `dividing_s` the additional time of cutting
      and of running each phase; together they are the time of its phases. `busy_s` is all that its
      processor does per frame: phases, firings and, unless its wire is free, sending and receiving.
    - `wire_bytes` [I] counts every tensor that leaves a device or the launcher, once per device
      that receives it.
    - `cache_overrun_bytes` are the weights that exceed a device's cache.
    - `tensor_bytes` estimates the weights, activations and channels that each device holds,
      `memory_bytes` all that it holds. `overrun_bytes` [I] sums what exceeds the devices' limits: 0
      where everything fits.
    - `energy_j` [I] is joules per frame of all devices that have layers.
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
    dividing_s: Floats
    tensor_bytes: Floats


class CostModel:
    """The costs of any assignment of `network`'s layers to `devices` (both non-empty).

    `layer_s` [layers, devices] replaces the estimate of `partition.pricing.compute_time`; channels
    between devices hold `slack_frames` frames beyond what their skews need. `live_bytes` [layers]
    replaces the bytes of a layer's inputs and outputs, for layers that stand for several.
    `wire_bytes` has the sizes of tensors that are encoded between devices; the time that this takes
    is left out. `layer_w` are measured watts of layers.

    >>> from cnn.network import Layer, Tensor
    >>> tensors = {name: Tensor(name, (1, 8), "float32") for name in "xyz"}
    >>> layers = (
    ...     Layer("l0", "Conv", ("x",), ("y",), (), 10**9),
    ...     Layer("l1", "Conv", ("y",), ("z",), (), 10**9),
    ... )
    >>> network = Network("net", layers, tensors, {}, ("x",), ("z",))
    >>> model = CostModel(network, [Device("a"), Device("b")])
    >>> model.evaluate(np.array([[0, 0], [0, 1]])).period_s.round(2)
    array([0.1 , 0.05])
    """

    def __init__(
        self,
        network: Network,
        devices: Sequence[Device],
        layer_s: Floats | None = None,
        slack_frames: int = SLACK_FRAMES,
        live_bytes: Floats | None = None,
        wire_bytes: Mapping[str, int] = MappingProxyType({}),
        layer_w: LayerWatts = MappingProxyType({}),
    ) -> None:
        self.network = network
        self.devices = tuple(devices)
        self.layer_s = layer_seconds(network, devices) if layer_s is None else layer_s
        self._surplus_j = self.layer_s * surplus_w(network, devices, layer_w) if layer_w else None
        self._rows = LayerRows(network, live_bytes)
        self._margin = margin_periods(slack_frames)
        component = np.array(network.component)
        self._components = [component == number for number in range(component.max() + 1)]
        self._machine_of = _machine_numbers(self.devices)
        self._shared = shared_machines(self.devices)
        self._traffic = Traffic(network, slack_frames, wire_bytes, share_cores=bool(self._shared))
        self.rates = rate_columns(self.devices)
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
        live = self._rows.live(device_of)
        compute, weights, activations, packing, kernels = (np.zeros(shape) for _ in range(5))
        surplus_j = np.zeros(individuals)
        for number, device in enumerate(self.devices):
            mine = device_of == number
            compute[number] = self.layer_s[:, number] @ mine
            weights[number] = self._rows.weights(mine)
            activations[number] = (live * mine).max(axis=0)
            packing[number] = self._rows.packing(mine)
            kernels[number] = device.engine_overhead.layer_bytes * mine.sum(axis=0)
            if self._surplus_j is not None:
                surplus_j += self._surplus_j[:, number] @ mine
        own = (_phases(device_of[of], levels[of], len(self.devices)) for of in self._components)
        phases = np.sum(list(own), axis=0)
        durations = self._durations(device_of, levels, compute.max(axis=0))
        flows = self._traffic.flows(device_of, levels, self._machine_of, durations)
        uncached = self._uncached(device_of, weights, flows.received_bytes)
        phases_s = self.rates.phases_s(compute, flows.cut_bytes, uncached, phases)
        busy, period = self.times(phases_s, phases, flows)
        engine = engines_bytes(self.devices, phases)
        tensors = weights + activations + flows.held_bytes
        memory = np.maximum(tensors + engine + kernels, START_UP_BYTES + packing)
        return Costs(
            period,
            (compute + self.rates.fetching_s(uncached)).T,
            busy.T,
            flows.sent_bytes.T,
            flows.received_bytes.T,
            flows.wire_bytes,
            weights.T,
            memory.T,
            self.overrun(memory),
            phases.T,
            period * (levels.max(axis=0) + LEAST_LATENCY_PERIODS),
            (self.rates.energy_j(busy, period, flows.sent_bytes) * (phases > 0)).sum(axis=0)
            + surplus_j,
            uncached.T,
            self.rates.dividing_s(flows.cut_bytes, phases).T,
            tensors.T,
        )

    def _uncached(self, device_of: Assignments, weights: Floats, received: Floats) -> Floats:
        """Return the bytes of weights beyond each device's cache: [devices, individuals]."""
        if all(device.cache_spill == "bytes" for device in self.devices):
            return self.rates.uncached_bytes(weights)
        return np.stack(
            [
                uncached_bytes(
                    device,
                    self.network.layer_weight_bytes,
                    device_of == number,
                    weights[number],
                    received[number],
                )
                for number, device in enumerate(self.devices)
            ]
        )

    def _durations(self, device_of: Assignments, levels: Ints, busiest_s: Floats) -> Durations:
        """Return how long phases and bytes take; the busiest device's layers stand for the period.

        `busiest_s` is [individuals].
        """
        layers, individuals = device_of.shape
        shape = (len(self.devices), int(levels.max(initial=0)) + 1, individuals)
        own_s = self.layer_s[np.arange(layers)[:, None], device_of]
        slots = np.ravel_multi_index((device_of, levels, np.arange(individuals)[None, :]), shape)
        seconds = np.bincount(slots.ravel(), own_s.ravel(), minlength=math.prod(shape))
        period_s = np.maximum(busiest_s, 1e-12)
        slowest = min(device.link_bytes_per_s for device in self.devices)
        return Durations(seconds.reshape(shape) / period_s, 1 / (slowest * period_s), self._margin)

    def times(self, phases_s: Floats, phases: Floats, flows: Flows) -> tuple[Floats, Floats]:
        """Return the seconds that processors are busy per frame [devices, individuals], and the
        period [individuals].

        `phases_s` is the time of a device's phases, `phases` their number: [devices, individuals].
        """
        moved = flows.sent_bytes + flows.received_bytes
        busy = self.rates.busy_s(phases_s, phases, flows.messages, moved)
        link = self.rates.link_s(flows.link_sent_bytes, flows.link_received_bytes)
        return busy, period_s(self._shared, busy, link, self._launcher_s)

    def overrun(self, memory: Floats) -> Floats:
        """Sum the bytes of `memory` [devices, individuals] beyond the devices' limits:
        [individuals]."""
        overrun = np.zeros(memory.shape[1])
        for device, held in zip(self.devices, memory, strict=True):
            if device.memory_bytes is not None:
                overrun += np.maximum(held - device.memory_bytes, 0.0)
        return overrun


def _phases(device_of: Assignments, levels: Ints, devices: int) -> Floats:
    """Count the different levels of each device's layers: [devices, individuals]."""
    individuals = device_of.shape[1]
    seen = np.zeros((devices, int(levels.max(initial=0)) + 1, individuals), dtype=bool)
    seen[device_of, levels, np.arange(individuals)] = True
    return np.asarray(seen.sum(axis=1), dtype=np.float64)


def _machine_numbers(devices: Sequence[Device]) -> NDArray[np.intp]:
    """Return the number of each device's machine: [devices]."""
    numbers = np.empty(len(devices), dtype=np.intp)
    for number, members in enumerate(machines(devices)):
        numbers[list(members)] = number
    return numbers
