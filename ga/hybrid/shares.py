"""The states of the hybrid search and their estimated costs.

A state says how many **grains** of each unit (`partition.strategies.units`) each device has:
integers [units, devices], whose rows sum up to the unit's grains. A unit whose grains are all on
one device stays whole; one whose grains are on several is split into parts of that many grains. So
one search decides both splitting and assignment, and no unit is split without need.

States are priced approximately, many at a time. Work and bytes divide with the grains, except for
what every part needs: the whole input (split by channels), or the weights and a halo (split by
rows). A tensor travels to each device that needs it, less what that device makes of it itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ga.hybrid.unit_rows import UnitRows
from ga.objectives import feasible_first, smooth_maximum
from partition.devices import machines
from partition.pricing.memory_budget import START_UP_BYTES, allowed_bytes, engines_bytes
from partition.pricing.traffic import Floats, Flows, frames_between_devices
from partition.strategies.base import Problem

States = NDArray[np.int16]
"""[individuals, units, devices]."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of the logarithms of costs.

    With time at 1 and memory at 0.5, one per cent of time is worth two per cent of memory. Time is
    the geometric mean of the period and of the busiest device's work; memory is Eq. 2 of the
    fullest device, relative to its fair share; traffic is bytes per frame.
    """

    time: float
    memory: float
    traffic: float
    parts: float


@dataclass(frozen=True, slots=True)
class ShareCosts:
    """Estimates for `I` states on `D` devices, [D, I] unless stated otherwise.

    `load_s` is the longer time of the processor (`busy_s`) and of the link. `beta_bytes` is Eq. 2
    of Tang & Stefanov (2021). `parts` [I] counts the parts of all units, a whole unit as one.
    `overrun_bytes` [I] is the excess over the devices' memory.
    """

    compute_s: Floats
    busy_s: Floats
    load_s: Floats
    period_s: Floats
    beta_bytes: Floats
    wire_bytes: Floats
    parts: Floats
    overrun_bytes: Floats


@dataclass(frozen=True, slots=True)
class Correction:
    """True costs minus estimates, each [devices, 1]."""

    compute_s: Floats
    busy_s: Floats
    beta_bytes: Floats


class Shares:
    """Estimates of the costs of states of one problem's units; see the module's docstring.

    `fair` [devices] is the memory that each device may use, relative to the mean.
    """

    def __init__(self, problem: Problem, rows: UnitRows, fair: Floats) -> None:
        self.rows = rows
        self.devices = len(problem.devices)
        self._costs = problem.costs
        self._fair = fair[:, None]
        self._slack_frames = problem.slack_frames
        self._floor_bytes = problem.network.ends_bytes
        self._allowed = allowed_bytes(problem.devices)
        self._on_link = np.zeros((self.devices, 1))
        for members in machines(problem.devices):
            self._on_link[list(members)] = len(members) == 1
        zeros = np.zeros((self.devices, 1))
        self._correction = Correction(zeros, zeros, zeros)

    def calibrate(
        self, state: States, compute_s: Floats, busy_s: Floats, beta_bytes: Floats
    ) -> None:
        """Correct all further estimates by the error of those for `state` [units, devices].

        The true costs, [devices], are those of the state after its units are split.
        """
        zeros = np.zeros((self.devices, 1))
        self._correction = Correction(zeros, zeros, zeros)
        costs = self.evaluate(state[None])
        self._correction = Correction(
            compute_s[:, None] - costs.compute_s,
            busy_s[:, None] - costs.busy_s,
            beta_bytes[:, None] - costs.beta_bytes,
        )

    def evaluate(self, states: States) -> ShareCosts:
        """Estimate the costs of every state."""
        rows = self.rows
        share = states / rows.grains[:, None]
        has = (states > 0).astype(np.float64)
        parts = has.sum(axis=2)
        compute = np.einsum("iud,ud->di", share, rows.layer_s)
        cuts = 1 - 1 / np.maximum(parts, 1.0)
        compute += np.einsum("iud,iu,ud->di", has, cuts, rows.halo_s)
        beta = _total(share, rows.own_bytes) + _total(has, rows.shared_bytes)
        beta += self._cut_bytes(share, parts)
        flows = self._flows(share, has, parts)
        moved = flows.received_bytes + flows.sent_bytes
        counted, rates = has.sum(axis=1).T, self._costs.rates
        phases = np.minimum(counted, 1.0)
        phases_s = rates.phases_s(compute, moved, np.zeros_like(moved), phases)
        busy, period = self._costs.times(phases_s + self._correction.busy_s, phases, flows)
        link = rates.link_s(flows.link_sent_bytes, flows.link_received_bytes)
        memory = self._memory(share, has, counted, flows)
        return ShareCosts(
            compute + self._correction.compute_s,
            busy,
            np.maximum(busy, link),
            period,
            beta + self._correction.beta_bytes,
            flows.wire_bytes,
            parts.sum(axis=1),
            self._costs.overrun(memory),
        )

    def score(self, states: States, weights: Weights) -> Floats:
        """Return the weighted score of every state: [individuals], smaller is better.

        Maxima over devices are smooth (`ga.objectives`).
        """
        costs = self.evaluate(states)
        load = costs.load_s
        period = costs.period_s * _smooth(load) / load.max(axis=0)
        score = (
            weights.time * (np.log(period) + np.log(_smooth(costs.compute_s))) / 2
            + weights.memory * np.log(_smooth(costs.beta_bytes / self._fair))
            + weights.traffic * np.log(costs.wire_bytes + self._floor_bytes)
            + weights.parts * np.log(costs.parts)
        )
        return feasible_first(score, costs.overrun_bytes / max(self._allowed, 1.0))

    def _cut_bytes(self, share: Floats, parts: Floats) -> Floats:
        """Return Eq. 2 of the layers that cut rows out of tensors on the producer's device.

        A part of a tensor is cut once for each band that needs some of its rows: the bands at its
        ends and those within.
        """
        tensors = self.rows.tensors
        found = np.zeros((self.devices, len(share)))
        for tensor, reader in tensors.cuts:
            source = tensors.source[tensor]
            made, wanted = parts[:, source], parts[:, reader]
            cuts = np.where(made > 1, wanted / made + 2, wanted + 1) * (wanted > 1)
            found += tensors.bytes[tensor] * share[:, source].T * cuts
        return found

    def _flows(self, share: Floats, has: Floats, parts: Floats) -> Flows:
        tensors = self.rows.tensors
        flows = Flows.none(self.devices, len(share))
        if not len(tensors.bytes):
            return flows
        needed = share[:, tensors.readers]
        needed[:, tensors.needs_all] = has[:, tensors.readers[tensors.needs_all]]
        needed = np.maximum.reduceat(needed, tensors.starts, axis=1)
        made, makes = share[:, tensors.source], has[:, tensors.source]
        made[:, tensors.source < 0] = makes[:, tensors.source < 0] = 0.0
        missing = np.maximum(needed - made, 0.0)
        flows.received_bytes[:] = _total(missing, tensors.bytes)
        made *= missing.sum(axis=2, keepdims=True)
        flows.sent_bytes[:] = _total(made, tensors.bytes)
        comes_in = (missing > 0).astype(np.float64)
        sources = np.where(tensors.source >= 0, parts[:, tensors.source], 1.0)
        messages = comes_in * (sources[:, :, None] - makes)
        messages += makes * comes_in.sum(axis=2, keepdims=True)
        flows.messages[:] = messages.sum(axis=1).T
        flows.link_received_bytes[:] = flows.received_bytes * self._on_link
        flows.link_sent_bytes[:] = flows.sent_bytes * self._on_link
        flows.wire_bytes[:] = flows.received_bytes.sum(axis=0)
        return flows

    def _memory(self, share: Floats, has: Floats, parts: Floats, flows: Flows) -> Floats:
        rows = self.rows
        weights = _total(share, rows.weight_bytes * ~rows.by_rows)
        weights += _total(has, rows.weight_bytes * rows.by_rows)
        live = (share * rows.live_bytes[:, None]).max(axis=1).T
        frames = frames_between_devices(self._slack_frames)
        held = frames * (flows.received_bytes + flows.sent_bytes)
        total = weights + live + held + engines_bytes(self._costs.devices, parts)
        return np.asarray(np.maximum(total, START_UP_BYTES))


def _total(amounts: Floats, size: Floats) -> Floats:
    """Return the sum over units or tensors of `amounts` [individuals, units, devices] × `size`
    [units]: [devices, individuals]."""
    return np.asarray(np.matmul(size, amounts).T)


def _smooth(values: Floats) -> Floats:
    """Return the smooth maximum over devices, of a gentle slope: shares change gradually."""
    return smooth_maximum(values, axis=0, exponent=24.0)
