"""Integer coefficients of the exact strategy's model: the cost model's linear terms.

CP-SAT works on integers. Bytes are divided by their greatest common divisor, which loses nothing;
seconds are counted in ticks, `TICKS` to the shortest period that any division of the layers could
have, and rounded down, so that a bound on the ticks is a bound on the seconds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from partition.devices import Device, machines
from partition.pricing.busy import rates_of
from partition.pricing.memory_budget import fair_memory
from partition.pricing.traffic import Assignments, Floats
from partition.strategies.alike import kinds_of
from partition.strategies.base import Problem
from partition.strategies.bounds import least_period_s

TICKS = 1e7
"""See the module's docstring."""

MOST_TICKS = 2.0**32
"""The most ticks of any quantity; ticks are longer if need be. CP-SAT has 64 bits, but has been
seen to call a model with numbers of 45 bits infeasible."""

SHARE_UNIT = 10_000
"""The rooms of unlike devices are compared in units of 1 ÷ this."""

SHARE_RANGE = 1 << 24
"""The number of parts, about, in which the weights of unlike devices are counted."""

MEMORY_UNIT = 1024
"""The unit of memory limits in bytes; what a device holds is rounded down."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A tensor: the number of its producer (−1: the launcher) and of its readers, its bytes, and
    whether it is a result, which the launcher reads."""

    source: int
    readers: tuple[int, ...]
    bytes: int
    is_result: bool


@dataclass(frozen=True)
class Terms:
    """A problem's layers by number, in topological order, and what each of them adds to a cost.

    `own_bytes` [layers] are weights that only one layer uses; `shared` are (bytes, layers) of the
    other weights. `activation_bytes` [layers] are the inputs and outputs of a layer. `siblings` are
    the sets of layers that read the output of one layer.
    """

    problem: Problem
    own_bytes: tuple[int, ...]
    shared: tuple[tuple[int, tuple[int, ...]], ...]
    tensors: tuple[Moved, ...]
    activation_bytes: tuple[int, ...]
    siblings: tuple[tuple[int, ...], ...]

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.own_bytes)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(producer, reader), each pair of layers once."""
        found = {(t.source, reader): None for t in self.tensors for reader in t.readers}
        return tuple(edge for edge in found if edge[0] >= 0)

    def largest_communication(self, population: Assignments) -> Floats:
        """Return the bytes that come to the device to which most come: [individuals].

        Every edge counts, so a tensor counts for each of its readers on a device, and frames of the
        launcher do not (Yin et al., Eq. 9 and 10, §IV-B).
        """
        received = np.zeros((len(self.problem.devices), len(population)))
        individuals = np.arange(len(population))
        for moved in self.tensors:
            for reader in moved.readers if moved.source >= 0 else ():
                here = population[:, reader]
                received[here, individuals] += moved.bytes * (population[:, moved.source] != here)
        return np.asarray(received.max(axis=0))

    @cached_property
    def kinds(self) -> tuple[tuple[int, ...], ...]:
        """Device numbers by kind; devices of one kind are interchangeable."""
        return kinds_of(self.problem)

    @cached_property
    def longest_path(self) -> tuple[int, ...]:
        """The layers of a longest path through the network."""
        import networkx as nx  # noqa: PLC0415 (slow to import)

        graph = nx.DiGraph(self.edges)
        return tuple(nx.dag_longest_path(graph)) if self.edges else (0,)

    def upstream_and_downstream(self, loads: Sequence[int]) -> tuple[list[int], list[int]]:
        """Sum `loads` over each layer and its ancestors, and over each layer and its
        descendants."""
        upstream = np.eye(self.layers, dtype=bool)
        for source, reader in sorted(self.edges, key=lambda edge: edge[1]):
            upstream[reader] |= upstream[source]
        given = np.array(loads, dtype=np.int64)
        return (upstream @ given).tolist(), (given @ upstream).tolist()

    @cached_property
    def are_apart(self) -> bool:
        """Whether no two devices share a machine, or all do, so that their order is irrelevant."""
        return len(self.machines) in (1, len(self.problem.devices))

    @cached_property
    def heaviest(self) -> tuple[int, ...]:
        """The layers by their weights, then by their work, the heaviest first."""
        seconds = self.problem.costs.layer_s.min(axis=1)
        return tuple(sorted(range(self.layers), key=lambda n: (-self.own_bytes[n], -seconds[n], n)))

    @cached_property
    def weight_unit(self) -> int:
        """The greatest common divisor of all weights and caches, in bytes."""
        caches = (device.cache_bytes or 0 for device in self.problem.devices)
        return math.gcd(*self.own_bytes, *(size for size, _ in self.shared), *caches) or 1

    @cached_property
    def weights(self) -> int:
        """The sum of all weights, each once, in `weight_unit`."""
        return (sum(self.own_bytes) + sum(size for size, _ in self.shared)) // self.weight_unit

    @cached_property
    def traffic_unit(self) -> int:
        """The greatest common divisor of all tensors, in bytes."""
        return math.gcd(*(tensor.bytes for tensor in self.tensors)) or 1

    @cached_property
    def tick_s(self) -> float:
        """Seconds per tick."""
        seconds = self.problem.costs.layer_s
        fastest = float(seconds.min(axis=1).sum()) / len(self.problem.devices)
        return max(fastest / TICKS, self._slowest_s / MOST_TICKS)

    @cached_property
    def watts(self) -> float:
        """A power in watts that no device exceeds; energies are counted in it × ticks."""
        return max(1e-3, *(max(d.busy_w, d.idle_w) for d in self.problem.devices))

    def ticks(self, seconds: float) -> int:
        """Return the whole ticks in `seconds`."""
        return math.floor(seconds / self.tick_s)

    @cached_property
    def period_range(self) -> tuple[int, int]:
        """A lower bound on the period, and the longest one that is ever needed, in ticks.

        Every layer's ticks are rounded down, so the bound is lowered by a tick for each.
        """
        least = self.ticks(least_period_s(self.problem)) - self.layers
        return max(0, least), self.ticks(self._slowest_s) + 1

    @cached_property
    def _slowest_s(self) -> float:
        """The seconds that all stages together take at most."""
        ways = len(self.problem.devices) + 1
        moved = sum(tensor.bytes for tensor in self.tensors) * ways
        weights = ways * self.weights * self.weight_unit
        messages = 2 * len(self.tensors) * ways

        def most_s(device: Device) -> float:
            rates = rates_of(device)
            phases_s = rates.phases_s(0.0, 2 * moved, weights, ways)
            busy_s = rates.busy_s(phases_s, ways, messages, 2 * moved)
            sending = moved * device.sent_j_per_byte / self.watts
            return float(busy_s + rates.link_s(moved, moved) * 2 + sending)

        layers_s = float(self.problem.costs.layer_s.max(axis=1).sum())
        return layers_s + max(map(most_s, self.problem.devices)) + 1e-9

    @cached_property
    def machine_of(self) -> tuple[tuple[int, ...], ...]:
        """For each device, the numbers of all that share its machine."""
        found = {number: members for members in self.machines for number in members}
        return tuple(found[number] for number in range(len(self.problem.devices)))

    @cached_property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """Device numbers by machine."""
        return machines(self.problem.devices)

    @cached_property
    def share_unit(self) -> int:
        """The number of parts of `weight_unit` in which shares of unlike rooms are counted."""
        alike = len(set(self.rooms)) == 1
        return 1 if alike else max(1, SHARE_RANGE // max(self.weights, 1))

    def share(self, weights: int, room: int) -> int:
        """Return `weights`, in `weight_unit`, relative to `room`, in `share_unit`, rounded up."""
        return -(-SHARE_UNIT * self.share_unit * weights // room)

    @cached_property
    def least_shares(self) -> list[int]:
        """The least that each layer adds to the share of its stage, rounded down."""
        parts = SHARE_UNIT * self.share_unit
        return [parts * (size // self.weight_unit) // max(self.rooms) for size in self.own_bytes]

    @cached_property
    def share_range(self) -> tuple[int, int]:
        """The least share of the fullest device (the mean, and the heaviest layer alone) and the
        largest (everything on the smallest device)."""
        heaviest = max(self.own_bytes) // self.weight_unit
        mean = self.share(self.weights, sum(self.rooms))
        least = max(mean, self.share(heaviest, max(self.rooms)))
        return least, self.share(self.weights, min(self.rooms))

    @cached_property
    def rooms(self) -> tuple[int, ...]:
        """Each device's share of the memory for weights (see `fair_memory`), in units."""
        fair = fair_memory(self.problem.devices)
        if np.ptp(fair) == 0:
            return (SHARE_UNIT,) * len(fair)
        return tuple(max(1, round(SHARE_UNIT * float(share))) for share in fair)


def terms_of(problem: Problem) -> Terms:
    """Return the terms of a problem."""
    network = problem.network
    number = network.place
    tensors = [
        Moved(
            number[network.producer[name]] if name in network.producer else -1,
            tuple(number[reader] for reader in network.consumers[name]),
            network.tensors[name].bytes,
            name in network.outputs and name in network.producer,
        )
        for name in network.tensors
        if network.consumers[name] or name in network.outputs
    ]
    sizes = network.bytes_by_readers
    return Terms(
        problem,
        tuple(sizes.get((place,), 0) for place in range(len(network.layers))),
        tuple((size, places) for places, size in sizes.items() if len(places) > 1),
        tuple(tensors),
        network.layer_activation_bytes,
        tuple(_siblings(tensors)),
    )


def _siblings(tensors: Sequence[Moved]) -> list[tuple[int, ...]]:
    """Return the sets of layers that read the output of one layer (operations with several children
    in Yin et al.)."""
    children: dict[int, dict[int, None]] = {}
    for tensor in tensors:
        if tensor.source >= 0:
            children.setdefault(tensor.source, {}).update(dict.fromkeys(tensor.readers))
    return [tuple(readers) for readers in children.values() if len(readers) > 1]
