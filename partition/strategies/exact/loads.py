"""Memory, time and traffic of each stage, as linear expressions over decision variables.

Each expression is a lower bound that is met where the solver minimises it. They are the linear
terms of the cost model (`partition.pricing.cost`). A device counts as firing one phase if it has
layers, and another each time that a longest path comes back to it; a tensor counts as cut if it
leaves its device; a channel between devices as holding the frames that neighbouring levels need.
The strategy finds the rest by pricing its solutions with the cost model itself.

Expressions are summed from lists of their terms. Do not use `+=`: OR-Tools extends the expression
on the left in place, and that may be a decision that others refer to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from partition.pricing import busy
from partition.pricing.memory_budget import least_engine_bytes
from partition.strategies.exact.placement import Expression, Placement
from partition.strategies.exact.terms import MEMORY_UNIT, SHARE_UNIT

_Key = tuple[int, int, tuple[int, ...]]


class TrafficVariables:
    """The traffic expressions; a method creates its variables when it is first called."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._terms = placement.terms
        self._far: dict[_Key, Expression] = {}
        self._copies: dict[_Key, Expression] = {}
        self._leaving: dict[tuple[int, int], Expression] = {}

    def total(self) -> Expression:
        """Bytes per frame that leave a device or the launcher, in `Terms.traffic_unit`.

        A tensor counts once per stage that reads it from elsewhere, as it travels. (In Eq. 9 of Yin
        et al. every edge counts: see `largest`.)
        """
        unit = self._terms.traffic_unit
        return sum(
            moved.bytes
            // unit
            * (moved.is_result + sum(self.reads(tensor, k) for k in self._placement.stages))
            for tensor, moved in enumerate(self._terms.tensors)
        )

    @cached_property
    def largest(self) -> Expression:
        """The most bytes per frame that come to one stage, in `Terms.traffic_unit`.

        Every edge counts, so a tensor counts for each of its readers (com of Yin et al., Eq. 9).
        """
        terms, placement = self._terms, self._placement
        edges = [(t, reader) for t in terms.tensors if t.source >= 0 for reader in t.readers]
        total = sum(tensor.bytes for tensor, _ in edges) // terms.traffic_unit
        largest = placement.integer(0, total, "largest communication")
        for stage in placement.stages:
            crossing = []
            for number, (tensor, reader) in enumerate(edges):
                crosses = placement.boolean(f"edge {number} into {stage}")
                placement.model.add(
                    crosses >= placement.at[reader][stage] - placement.at[tensor.source][stage]
                )
                crossing.append(tensor.bytes // terms.traffic_unit * crosses)
            placement.model.add(largest >= sum(crossing))
        return largest

    def reads(self, tensor: int, stage: int, near: Iterable[int] = ()) -> Expression:
        """Return 1 if `stage` reads a tensor that neither it nor a stage in `near` produces: α_e
        (Yin et al., Eq. 10)."""
        near = _together(stage, near)
        moved, at = self._terms.tensors[tensor], self._placement.at
        if not moved.readers or (moved.source >= 0 and len(near) == len(self._placement.stages)):
            return 0
        key = (tensor, stage, near)
        if key not in self._far:
            far = self._placement.boolean(f"tensor {tensor} into {stage} past {near}")
            made = sum(at[moved.source][k] for k in near) if moved.source >= 0 else 0
            for reader in moved.readers:
                self._placement.model.add(far >= at[reader][stage] - made)
            self._far[key] = far
        return self._far[key]

    def sends(self, tensor: int, stage: int, near: Iterable[int] = ()) -> Expression:
        """Return how often `stage` sends a tensor that it produces: once to every stage that reads
        it, except those in `near`, and once to the launcher if it is a result."""
        near = _together(stage, near)
        moved = self._terms.tensors[tensor]
        if moved.source < 0:
            return 0
        result = int(moved.is_result) * self._placement.at[moved.source][stage]
        beyond = [k for k in self._placement.stages if k not in near]
        most = min(len(moved.readers), len(beyond))
        if most == 0:
            return result
        if most == 1 and near == (stage,) and not moved.is_result:
            return self.leaves(tensor, stage)
        key = (tensor, stage, near)
        if key not in self._copies:
            self._copies[key] = self._copied(tensor, stage, near, beyond, most)
        return result + self._copies[key]

    def _copied(
        self, tensor: int, stage: int, near: tuple[int, ...], beyond: Sequence[int], most: int
    ) -> Expression:
        moved, placement = self._terms.tensors[tensor], self._placement
        made = placement.at[moved.source][stage]
        copies = placement.integer(0, most, f"tensor {tensor} from {stage} past {near}")
        for reader in moved.readers:
            placement.model.add(copies >= made - sum(placement.at[reader][k] for k in near))
        if most > 1:
            read = sum(self.reads(tensor, k) for k in beyond)
            placement.model.add(copies >= read - most * (1 - made))
        return copies

    def leaves(self, tensor: int, stage: int) -> Expression:
        """Return 1 if `stage` produces a tensor and sends it to any stage or to the launcher."""
        moved, at = self._terms.tensors[tensor], self._placement.at
        if moved.source < 0:
            return 0
        if moved.is_result:
            return at[moved.source][stage]
        if (tensor, stage) not in self._leaving:
            leaving = self._placement.boolean(f"tensor {tensor} leaves {stage}")
            for reader in moved.readers:
                self._placement.model.add(leaving >= at[moved.source][stage] - at[reader][stage])
            self._leaving[tensor, stage] = leaving
        return self._leaving[tensor, stage]


def _together(stage: int, near: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({stage, *near}))


class LoadVariables:
    """The load expressions; each creates its variables when it is first used."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._terms = placement.terms
        self._devices = placement.terms.problem.devices
        self.traffic = TrafficVariables(placement)

    @cached_property
    def weights(self) -> list[Expression]:
        """Weights of each stage, in `Terms.weight_unit`; a shared weight counts once per stage: m_k
        (Yin et al., Eq. 5)."""
        terms, placement = self._terms, self._placement
        sums = []
        for stage in placement.stages:
            held = [
                size // terms.weight_unit * placement.at[layer][stage]
                for layer, size in enumerate(terms.own_bytes)
                if size
            ]
            for number, (size, users) in enumerate(terms.shared):
                here = placement.boolean(f"shared {number} in {stage}")
                for layer in users:
                    placement.model.add(here >= placement.at[layer][stage])
                held.append(size // terms.weight_unit * here)
            sums.append(sum(held))
        return sums

    @cached_property
    def largest_share(self) -> Expression:
        """Weights of the fullest stage, in `Terms.weight_unit` ÷ `Terms.share_unit` (m_limit of Yin
        et al., Eq. 7); if devices differ, relative to the room of each."""
        terms = self._terms
        share = self._placement.integer(*terms.share_range, "largest share")

        def bound(stage: int, device: int) -> Any:
            if terms.share_unit == 1 and terms.rooms[device] == SHARE_UNIT:
                return share >= self.weights[stage]
            return (
                terms.rooms[device] * share >= SHARE_UNIT * terms.share_unit * self.weights[stage]
            )

        self._placement.require(bound)
        return share

    @cached_property
    def uncached(self) -> list[Expression]:
        """Weights of each stage beyond its device's cache: m_DRAM (Yin et al., Eq. 8)."""
        terms, placement = self._terms, self._placement
        if all(device.cache_bytes is None for device in self._devices):
            return [0 for _ in placement.stages]
        over = [placement.integer(0, terms.weights, f"uncached of {k}") for k in placement.stages]

        def beyond(stage: int, device: int) -> Any:
            room = self._devices[device].cache_bytes
            if room is None:
                return None
            return over[stage] >= self.weights[stage] - room // terms.weight_unit

        placement.require(beyond)
        return over

    @cached_property
    def period(self) -> Expression:
        """Ticks (`Terms.tick_s`) of the busiest device, link or machine."""
        placement = self._placement
        period = placement.integer(*self._terms.period_range, "period")
        placement.require(lambda k, d: period >= self._busy(k, d))
        placement.require(lambda k, d: period >= self._receiving(k, d))
        placement.require(lambda k, d: period >= self._sending(k, d))
        for machine in busy.shared_machines(self._devices):
            together = sum(self._busy_wherever[stage] for stage in machine.members)
            placement.model.add(machine.cores * period >= together)
        return period

    @cached_property
    def latency(self) -> Expression:
        """Ticks of all stages for one frame, and of the transfers to them."""
        placement, most = self._placement, self._terms.period_range[1]
        parts = [placement.integer(0, most, f"latency of {k}") for k in placement.stages]
        placement.require(
            lambda k, d: parts[k] >= self._busy(k, d) + self._receiving(k, d, near=())
        )
        return sum(parts)

    @cached_property
    def energy(self) -> Expression:
        """Joules per frame, in `Terms.tick_s` × `Terms.watts`: stages work, then wait, and send."""
        placement, most = self._placement, self._terms.period_range[1]
        parts = [placement.integer(0, 4 * most, f"energy of {k}") for k in placement.stages]
        lasting = [placement.integer(0, most, f"period of {k}, if used") for k in placement.stages]
        for used, period in zip(self._used, lasting, strict=True):
            placement.model.add(period >= self.period - most * (1 - used))
        placement.require(lambda k, d: parts[k] >= self._joules(k, d, lasting[k]))
        return sum(parts)

    def _joules(self, stage: int, device: int, lasting: Expression) -> Expression:
        """Return the energy of a stage per frame that lasts `lasting`: work, wait and send."""
        terms, own = self._terms, self._devices[device]
        idle_w = min(own.idle_w, own.busy_w)
        working = self._busy(stage, device, (own.busy_w - idle_w) / terms.watts)
        sending = sum(
            terms.ticks(moved.bytes * own.sent_j_per_byte / terms.watts)
            * self.traffic.sends(tensor, stage)
            for tensor, moved in enumerate(terms.tensors)
        )
        return working + self._times(idle_w / terms.watts, lasting) + sending

    def _busy(self, stage: int, device: int, factor: float = 1.0) -> Expression:
        """Return `factor` × the ticks that `stage` works per frame if it is on this device."""
        terms, rates = self._terms, busy.rates_of(self._devices[device])
        layer_s = terms.problem.costs.layer_s[:, device].tolist()
        at = [on[stage] for on in self._placement.at]
        tensors = [
            (
                moved.bytes,
                self.traffic.reads(tensor, stage),
                self.traffic.leaves(tensor, stage),
                self.traffic.sends(tensor, stage),
            )
            for tensor, moved in enumerate(terms.tensors)
        ]
        *summands, (uncached_s, uncached) = busy.linear_s(
            rates,
            zip(layer_s, at, strict=True),
            self._phases[stage],
            tensors,
            (terms.weight_unit, self.uncached[stage]),
        )
        ticks = [terms.ticks(seconds * factor) * count for seconds, count in summands if seconds]
        if self._devices[device].cache_bytes is not None:
            ticks.append(self._times(uncached_s * factor / terms.tick_s, uncached))
        return sum(ticks)

    def _times(self, factor: float, expression: Expression) -> Expression:
        """Return `factor` × `expression`, rounded down.

        `factor` is exact to one part in 2¹⁴, which is less than the gap that counts as none.
        """
        fraction = 1 << max(0, min(16, 14 - math.floor(math.log2(max(factor, 1e-9)))))
        most = self._terms.period_range[1]
        product = self._placement.integer(0, most, f"{factor} of {expression}")
        whole = math.floor(fraction * factor)
        self._placement.model.add(fraction * product >= whole * expression - fraction + 1)
        return product

    @cached_property
    def _used(self) -> list[Expression]:
        """For each stage, 1 if it has layers."""
        used = []
        for stage in self._placement.stages:
            used.append(self._placement.boolean(f"stage {stage} is used"))
            layers = sum(at[stage] for at in self._placement.at)
            self._placement.model.add(self._terms.layers * used[-1] >= layers)
        return used

    @cached_property
    def _phases(self) -> list[Expression]:
        """The least number of firings of each stage per frame."""
        placement, longest_path = self._placement, self._terms.longest_path
        if placement.is_contiguous:  # no path returns to a stage
            return self._used
        phases = []
        for stage in placement.stages:
            count = placement.integer(0, len(longest_path), f"phases of {stage}")
            entries = [placement.at[longest_path[0]][stage]]
            for before, behind in pairwise(longest_path):
                enters = placement.boolean(f"{behind} enters {stage}")
                here, there = placement.at[behind][stage], placement.at[before][stage]
                placement.model.add(enters >= here - there)
                entries.append(enters)
            placement.model.add(count >= sum(entries))
            placement.model.add(count >= self._used[stage])
            phases.append(count)
        return phases

    @cached_property
    def _busy_wherever(self) -> list[Expression]:
        placement, most = self._placement, self._terms.period_range[1]
        ticks = [placement.integer(0, most, f"busy {stage}") for stage in placement.stages]
        placement.require(lambda k, d: ticks[k] >= self._busy(k, d))
        return ticks

    def _near(self, device: int) -> tuple[int, ...]:
        """Return the stages on the machine of a device; its own stage need not be among them."""
        machine = self._terms.machine_of[device]
        if self._placement.is_ordered:
            return machine
        return () if len(machine) == 1 else tuple(self._placement.stages)

    def _receiving(
        self, stage: int, device: int, near: tuple[int, ...] | None = None
    ) -> Expression:
        """Return the ticks of the device's link for what comes from elsewhere than the stages
        `near` (those on its machine)."""
        terms = self._terms
        near = self._near(device) if near is None else near
        rate = self._devices[device].link_bytes_per_s
        return sum(
            terms.ticks(moved.bytes / rate) * self.traffic.reads(tensor, stage, near)
            for tensor, moved in enumerate(terms.tensors)
        )

    def _sending(self, stage: int, device: int) -> Expression:
        """Return the ticks of the device's link for what goes to other machines."""
        terms, near = self._terms, self._near(device)
        rate = self._devices[device].link_bytes_per_s
        return sum(
            terms.ticks(moved.bytes / rate) * self.traffic.sends(tensor, stage, near)
            for tensor, moved in enumerate(terms.tensors)
        )

    def keep_within(self, limits: Sequence[float | None], frames: int) -> None:
        """Constrain the least memory of each device to its limit [devices], in bytes.

        A channel between devices holds `frames` frames at either end.
        """
        if all(limit is None for limit in limits):
            return
        held = [self._held(stage, frames) for stage in self._placement.stages]

        def bound(stage: int, device: int) -> Any:
            limit = limits[device]
            return None if limit is None else held[stage] <= math.floor(limit / MEMORY_UNIT)

        self._placement.require(bound)

    def _held(self, stage: int, frames: int) -> Expression:
        """Return the memory of a stage, in `MEMORY_UNIT`, every part rounded down."""
        terms, placement = self._terms, self._placement
        sizes = [size // MEMORY_UNIT for size in terms.activation_bytes]
        activations = placement.integer(0, max(sizes), f"activations of {stage}")
        for size, at in zip(sizes, placement.at, strict=True):
            placement.model.add(activations >= size * at[stage])
        most = terms.weights * terms.weight_unit // MEMORY_UNIT + 1
        weights = placement.integer(0, most, f"weights of {stage}")
        placement.model.add(MEMORY_UNIT * (weights + 1) > terms.weight_unit * self.weights[stage])
        channels = []
        for tensor, moved in enumerate(terms.tensors):
            held = frames * moved.bytes // MEMORY_UNIT
            channels.append(held * self.traffic.reads(tensor, stage))
            channels.append(held * self.traffic.leaves(tensor, stage))
        engine = least_engine_bytes(self._devices) // MEMORY_UNIT * self._used[stage]
        return weights + activations + sum(channels) + engine
