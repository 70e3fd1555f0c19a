"""The costs of every contiguous run of layers, in topological order, on every device.

A segment is the half-open range [a, b) of layer positions. Its costs on a device follow from a and
b alone if a tensor is counted once as sent (a tensor that several later segments read is sent more
often; `CostModel` prices the finished assignment exactly), and if devices do not share cores.
Tables are float64 [layers + 1, layers + 1], with one per kind of device where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device
from partition.pricing.busy import Rates, rate_columns
from partition.pricing.memory_budget import (
    START_UP_BYTES,
    engine_bytes,
    packing_bytes,
    quantised_bytes,
    room_bytes,
)
from partition.pricing.spill import uncached_bytes
from partition.pricing.traffic import Floats, frames_between_devices
from partition.strategies.alike import kind_by_device, kinds_of
from partition.strategies.base import Problem


@dataclass(frozen=True)
class Segments:
    """The costs of every segment [a, b), for each kind of device; empty segments cost nothing.

    `kinds` lists the device numbers of each kind, and `devices` has one device of each. `allowed`
    [kinds, layers + 1, layers + 1] is False where a segment is impossible (b < a, or it holds a
    layer pinned to another device). `layer_s` [kinds] sums the layers' seconds. `held_bytes`
    [kinds] is the memory of a device: weights, largest activation, channels, engine.
    `packing_bytes` is what the engine needs for a moment while it loads
    (`partition.prediction.memory`). `uncached_bytes` [kinds] are the weights that the cache of a
    kind of device has no room for.
    """

    kinds: tuple[tuple[int, ...], ...]
    devices: tuple[Device, ...]
    allowed: NDArray[np.bool_]
    layer_s: Floats
    weight_bytes: Floats
    held_bytes: Floats
    packing_bytes: Floats
    uncached_bytes: Floats
    received_bytes: Floats
    received_tensors: Floats
    sent_bytes: Floats
    sent_tensors: Floats

    def fitting(self) -> NDArray[np.bool_]:
        """Return a mask of the allowed segments that the memory of their kind of device holds."""
        limits = [np.inf if d.memory_bytes is None else d.memory_bytes for d in self.devices]
        room = np.array(limits)[:, None, None]
        return np.asarray(self.allowed & (self.peak_bytes <= room))

    @property
    def peak_bytes(self) -> Floats:
        """The most bytes that a device holds, while it loads or later."""
        loading = START_UP_BYTES + self.packing_bytes
        return np.where(self.held_bytes > 0, np.maximum(self.held_bytes, loading), 0.0)

    @cached_property
    def rates(self) -> Rates[Floats]:
        """The rates of each kind of device: [kinds, 1, 1]."""
        columns = rate_columns(self.devices)
        return Rates(*(getattr(columns, name)[:, :, None] for name in Rates.__slots__))

    @cached_property
    def busy_s(self) -> Floats:
        """Seconds that a segment keeps the processor busy: t of Velasco-Montero et al. (2023)."""
        moved = self.received_bytes + self.sent_bytes
        messages = self.received_tensors + self.sent_tensors
        one = np.ones_like(moved)
        phases_s = self.rates.phases_s(self.layer_s, moved, self.uncached_bytes, one)
        busy = self.rates.busy_s(phases_s, one, messages, moved)
        return np.where(self.held_bytes > 0, busy, 0.0)

    @cached_property
    def link_s(self) -> Floats:
        """Seconds that a segment keeps the network interface busy."""
        return self.rates.link_s(self.sent_bytes, self.received_bytes)

    @cached_property
    def seconds(self) -> Floats:
        """The shortest period that a segment allows: max(t, link), in seconds."""
        return np.maximum(self.busy_s, self.link_s)

    @cached_property
    def response_s(self) -> Floats:
        """Seconds from the departure of a segment's inputs to the end of the segment while the
        device has nothing else to do: a term of their Eq. 5, transfer included."""
        return self.rates.response_s(self.busy_s, self.received_bytes)

    @cached_property
    def joules(self) -> Floats:
        """A segment's term of their Eq. 4 in joules, with sending and without waiting."""
        return self.rates.energy_j(self.busy_s, np.zeros_like(self.busy_s), self.sent_bytes)

    @cached_property
    def memory_share(self) -> Floats:
        """The memory that a segment needs, relative to the room for it (`room_bytes`)."""
        return np.asarray(self.held_bytes / room_bytes(self.devices)[:, None, None])

    def energy_j(self, numbers: NDArray[np.intp]) -> float:
        """Return the joules per frame of a contiguous assignment, waiting included."""
        kind_of = kind_by_device(self.kinds)
        ends = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        stages = [(kind_of[int(numbers[a])], a, b) for a, b in pairwise(ends)]
        period_s = max(self.seconds[stage] for stage in stages)
        joules = self.rates.energy_j(self.busy_s, np.array(period_s), self.sent_bytes)
        return float(sum(joules[stage] for stage in stages))

    def at(self, positions: Sequence[int]) -> Segments:
        """Return the segments that begin and end at `positions` (ascending, with 0 and the end)."""
        grid = np.ix_(positions, positions)
        each = np.ix_(range(len(self.kinds)), positions, positions)
        return replace(
            self,
            allowed=self.allowed[each],
            layer_s=self.layer_s[each],
            weight_bytes=self.weight_bytes[grid],
            held_bytes=self.held_bytes[each],
            packing_bytes=self.packing_bytes[grid],
            uncached_bytes=self.uncached_bytes[each],
            received_bytes=self.received_bytes[grid],
            received_tensors=self.received_tensors[grid],
            sent_bytes=self.sent_bytes[grid],
            sent_tensors=self.sent_tensors[grid],
        )


def segments(problem: Problem) -> Segments:
    """Price every segment of the problem's network on every kind of device."""
    received, received_tensors, sent, sent_tensors = _crossing(problem)
    network = problem.network
    weights = range_sum(np.array(network.layer_weight_bytes, dtype=float))
    held = weights + _range_max(np.array(network.layer_activation_bytes, dtype=float))
    held += (received + sent) * frames_between_devices(problem.slack_frames)
    starts = np.arange(len(problem.network.layers) + 1)
    layers = starts[None, :] - starts[:, None]
    forward = starts[:, None] <= starts
    kinds = kinds_of(problem, ignore_machines=True)
    allowed = np.empty((len(kinds), *forward.shape), dtype=bool)
    for index, members in enumerate(kinds):
        foreign = (problem.pinned >= 0) & (problem.pinned != members[0])
        allowed[index] = forward & (range_sum(foreign.astype(np.float64)) == 0)
    devices = tuple(problem.devices[members[0]] for members in kinds)
    engines = (device.engine_overhead for device in devices)
    owned = [held + engine_bytes(1, engine=own) + own.layer_bytes * layers for own in engines]
    return Segments(
        kinds,
        devices,
        allowed,
        np.stack([range_sum(problem.costs.layer_s[:, members[0]]) for members in kinds]),
        weights,
        np.where(layers > 0, np.stack(owned), 0.0),
        _range_max(_packing(problem)) + range_sum(_quantised(problem)),
        np.stack([_uncached(problem, members[0], weights, received) for members in kinds]),
        received,
        received_tensors,
        sent,
        sent_tensors,
    )


def _uncached(problem: Problem, number: int, weights: Floats, received: Floats) -> Floats:
    """Return the weights of every segment beyond the cache of a device."""
    place = np.arange(len(weights))
    mine = (
        (place[:, None] <= layer) & (layer < place) for layer in range(len(problem.network.layers))
    )
    return uncached_bytes(
        problem.devices[number],
        problem.network.layer_weight_bytes,
        mine,
        np.maximum(weights, 0.0),
        received,
    )


def _packing(problem: Problem) -> Floats:
    network = problem.network
    return np.array(
        [packing_bytes(network, (layer.name,)) for layer in network.layers], dtype=float
    )


def _quantised(problem: Problem) -> Floats:
    network = problem.network
    return np.array([quantised_bytes(network, (layer.name,)) for layer in network.layers], float)


def range_sum(values: Floats) -> Floats:
    """Return the table [a, b] of the sums of values[a:b]."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[None, :] - sums[:, None])


def _range_max(values: Floats) -> Floats:
    """Return the table [a, b] of the largest of values[a:b], 0 if there is none."""
    count = len(values)
    spread = np.zeros((count + 1, count + 1))
    starts = np.arange(count)
    spread[:-1, 1:] = np.where(starts[:, None] <= starts, values, 0.0)
    return np.maximum.accumulate(spread, axis=1)


def _crossing(problem: Problem) -> tuple[Floats, Floats, Floats, Floats]:
    """Return for every [a, b): bytes and tensors received, bytes and tensors sent."""
    network = problem.network
    count = len(network.layers)
    position = network.place
    received, received_tensors, sent, sent_tensors = (
        np.zeros((count + 1, count + 2)) for _ in range(4)
    )
    for name, tensor in network.tensors.items():
        producer = position[network.producer[name]] if name in network.producer else -1
        size = problem.wire_bytes.get(name, tensor.bytes)
        readers = [position[layer] for layer in network.consumers[name]]
        before = producer
        for reader in readers:
            # In segments that start after `before` and end after `reader`, it is the first reader.
            received[before + 1 : reader + 1, reader + 1] += size
            received_tensors[before + 1 : reader + 1, reader + 1] += 1
            before = reader
        last = count if name in network.outputs else max(readers, default=producer)
        if producer >= 0 and last > producer:
            sent[: producer + 1, producer + 1] += size
            sent[: producer + 1, last + 1] -= size
            sent_tensors[: producer + 1, producer + 1] += 1
            sent_tensors[: producer + 1, last + 1] -= 1
    summed = [
        np.cumsum(table, axis=1)[:, :-1]
        for table in (received, received_tensors, sent, sent_tensors)
    ]
    return summed[0], summed[1], summed[2], summed[3]
