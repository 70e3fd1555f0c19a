"""Formulas of the cost model: how long a device is busy per frame, and the period that follows.

For one device, per frame:

    phases_s = seconds of its layers
             + bytes that its phases read or write across their borders × `cut_s_per_byte`
             + bytes of weights beyond its cache                        × `cache_s_per_byte`
             + phases                                                   × `run_s`
    busy_s   = phases_s + phases × `firing_s`
             + messages × `message_s` + bytes moved × `byte_s`          (0 where the wire is free)
    link_s   = bytes sent or received, whichever are more ÷ `link_bytes_per_s`
    energy_j = busy_s × `busy_w` + (period_s − busy_s) × `idle_w` + bytes sent × `sent_j_per_byte`

This is the time t of a stage of Velasco-Montero et al. (2023). For all devices together, `period_s`
(their Eq. 3) is the largest of these: each busy_s and link_s, the busy seconds of the devices of
one machine divided by its cores, and the seconds of the launcher's own link.

The formulas exist in two forms. As functions they take the figures of one device (`rates_of`) or
columns [devices, 1] of several (`rate_columns`), which price whole populations of assignments at
once. As coefficients (`linear_s`) they serve models that are linear in their decisions, such
as the integer program of `partition.strategies.exact.loads`. `tests/partition/test_busy.py` holds
both forms and everything that uses them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np

from partition.devices import Device, machines
from partition.pricing.traffic import Floats

Figure = TypeVar("Figure", float, Floats)


@dataclass(frozen=True, slots=True)
class Rates(Generic[Figure]):
    """The figures of one device, or columns [devices, 1] of several; see the module's docstring.

    `message_s` and `byte_s` are 0 where the wire is free; `cache_bytes` is infinite where there is
    no cache.
    """

    firing_s: Figure
    run_s: Figure
    cut_s_per_byte: Figure
    cache_bytes: Figure
    cache_s_per_byte: Figure
    message_s: Figure
    byte_s: Figure
    link_bytes_per_s: Figure
    busy_w: Figure
    idle_w: Figure
    sent_j_per_byte: Figure

    def uncached_bytes(self, weight_bytes: Figure) -> Figure:
        """Return the bytes of weights that the cache has no room for."""
        return _larger(weight_bytes - self.cache_bytes, 0.0 * weight_bytes)

    def fetching_s(self, uncached_bytes: Figure) -> Figure:
        """Return the seconds in which the weights beyond the cache are fetched again."""
        return uncached_bytes * self.cache_s_per_byte

    def cut_s(self, cut_bytes: Figure) -> Figure:
        """Return the seconds that tensors which cross the border of a phase cost the engine."""
        return cut_bytes * self.cut_s_per_byte

    def dividing_s(self, cut_bytes: Figure, phases: Figure) -> Figure:
        """Return the seconds that the engine takes because the network is divided: for tensors that
        cross the borders of phases, and for each run of a phase."""
        return self.cut_s(cut_bytes) + phases * self.run_s

    def phases_s(
        self, layer_s: Figure, cut_bytes: Figure, uncached_bytes: Figure, phases: Figure
    ) -> Figure:
        """Return the seconds that the phases take."""
        return layer_s + self.fetching_s(uncached_bytes) + self.dividing_s(cut_bytes, phases)

    def busy_s(
        self, phases_s: Figure, phases: Figure, messages: Figure, moved_bytes: Figure
    ) -> Figure:
        """Return the seconds that the processor is busy: phases, firings, and serving the wire."""
        wire = messages * self.message_s + moved_bytes * self.byte_s
        return phases_s + phases * self.firing_s + wire

    def link_s(self, sent_bytes: Figure, received_bytes: Figure) -> Figure:
        """Return the seconds that the network interface is busy; it is full duplex."""
        return _larger(sent_bytes, received_bytes) / self.link_bytes_per_s

    def response_s(self, busy_s: Figure, received_bytes: Figure) -> Figure:
        """Return the seconds from the departure of a device's inputs to the end of its work while
        it has nothing else to do: a summand of Eq. 5 of Velasco-Montero et al. (2023)."""
        return busy_s + received_bytes / self.link_bytes_per_s

    def energy_j(self, busy_s: Figure, period_s: Figure, sent_bytes: Figure) -> Figure:
        """Return the joules of a period for working, waiting and sending: a summand of Eq. 4 of
        Velasco-Montero et al. (2023)."""
        waiting_s = _larger(period_s, busy_s) - busy_s
        working = busy_s * self.busy_w + waiting_s * self.idle_w
        return working + sent_bytes * self.sent_j_per_byte


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """A machine with more devices than cores: the device numbers, and the number of cores."""

    members: tuple[int, ...]
    cores: int


def shared_machines(devices: Sequence[Device]) -> tuple[SharedMachine, ...]:
    """Return the machines whose devices cannot all be busy at once.

    >>> shared_machines([Device("a", host="pc"), Device("b", host="pc"), Device("c")])
    (SharedMachine(members=(0, 1), cores=1),)
    """
    found = (
        SharedMachine(members, max(devices[number].host_cores for number in members))
        for members in machines(devices)
    )
    return tuple(machine for machine in found if len(machine.members) > machine.cores)


def period_s(
    shared: Iterable[SharedMachine], busy_s: Floats, link_s: Floats, launcher_s: float = 0.0
) -> Floats:
    """Return the period of a saturated pipeline: [...] from `busy_s` and `link_s` [devices, ...].

    >>> devices = [Device("a", host="pc"), Device("b", host="pc")]
    >>> float(period_s(shared_machines(devices), np.array([2.0, 3.0]), np.array([1.0, 4.0])))
    5.0
    """
    period = np.maximum(np.maximum(busy_s, link_s).max(axis=0), launcher_s)
    for machine in shared:
        together = busy_s[list(machine.members)].sum(axis=0)
        period = np.maximum(period, together / machine.cores)
    return np.asarray(period)


def rates_of(device: Device) -> Rates[float]:
    """Return the figures of one device."""
    serves = 0.0 if device.wire_is_free else 1.0
    return Rates(
        device.firing_s,
        device.run_s,
        device.cut_s_per_byte,
        np.inf if device.cache_bytes is None else float(device.cache_bytes),
        device.cache_s_per_byte,
        serves * device.wire_s_per_message,
        serves * device.wire_s_per_byte,
        device.link_bytes_per_s,
        device.busy_w,
        device.idle_w,
        device.sent_j_per_byte,
    )


def linear_s(
    rates: Rates[float],
    layers: Iterable[tuple[float, Any]],
    phases: Any,
    tensors: Iterable[tuple[float, Any, Any, Any]],
    uncached: tuple[float, Any],
) -> Iterator[tuple[float, Any]]:
    """Yield the terms of one device's `busy_s` as (seconds, count).

    `layers` are (seconds, 1 if the device has the layer). `phases` is the number of its firings.
    `tensors` are (bytes, 1 if the device reads the tensor from elsewhere, 1 if the tensor leaves
    the device, how often the device sends it). `uncached` is (bytes of a unit, units beyond the
    cache), and its term comes last. A count may be a number or a linear expression over decisions.
    """
    yield rates.run_s + rates.firing_s, phases
    yield from layers
    for size_bytes, reads, leaves, sends in tensors:
        yield rates.cut_s(size_bytes), reads + leaves
        yield rates.message_s + size_bytes * rates.byte_s, reads + sends
    unit_bytes, units = uncached
    yield rates.fetching_s(unit_bytes), units


def rate_columns(devices: Sequence[Device]) -> Rates[Floats]:
    """Return the figures of several devices, each as a column [devices, 1]."""
    each = [rates_of(device) for device in devices]
    columns = (np.array([[getattr(rates, name)] for rates in each]) for name in Rates.__slots__)
    return Rates(*columns)


def _larger(one: Figure, other: Figure) -> Figure:
    return cast(Figure, np.maximum(one, other))
