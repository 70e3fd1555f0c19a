"""Contiguous cuts of the topological order: what every segment costs, and the best cuts by dynamic
programming.

A segment is the half-open range [a, b) of layer positions. Its costs on a device follow from a and
b alone if a tensor is counted once as sent (a tensor that several later segments read is sent more
often; `CostModel` prices the finished assignment exactly).

Devices that are alike are interchangeable, so the dynamic program runs over how many of each kind
are used: for n equal devices that is n + 1 states, for n different ones 2^n, which covers every
order of the devices.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from partition.devices import Device
from partition.engine_memory import START_UP_BYTES, engine_bytes
from partition.strategies.base import Problem
from partition.traffic import SLACK_FRAMES, Floats

MAX_WORK = 3e8
"""Transitions × segments beyond which the devices are used in the user's order only (about 1 s)."""


@dataclass(frozen=True)
class Segments:
    """Costs of every segment [a, b) for each kind of device: float64 [kinds, layers+1, layers+1].

    Where a segment is impossible (b < a, or it holds a layer pinned to another device) `allowed`
    is False. Empty segments cost nothing. `kinds` lists the device numbers of each kind.
    """

    kinds: tuple[tuple[int, ...], ...]
    allowed: NDArray[np.bool_]
    seconds: Floats
    memory_share: Floats
    received_bytes: Floats

    def fitting(self) -> NDArray[np.bool_]:
        """The allowed segments that the memory of their kind of device holds."""
        return np.asarray(self.allowed & (self.memory_share <= 1.0))


def segments(problem: Problem) -> Segments:
    """Price every segment of the problem's network on every kind of device."""
    count = len(problem.network.layers)
    received, received_tensors, sent, sent_tensors = _crossing(problem)
    held = _range_sum(_weights(problem)) + _range_max(_activations(problem))
    held += (received + sent) * (2 + SLACK_FRAMES) + engine_bytes(1)
    held = np.maximum(held, START_UP_BYTES)
    starts = np.arange(count + 1)
    forward = starts[:, None] <= starts
    empty = starts[:, None] == starts
    kinds = _kinds(problem)
    shape = (len(kinds), count + 1, count + 1)
    allowed = np.empty(shape, dtype=bool)
    seconds, share = np.empty(shape), np.empty(shape)
    pinned = problem.pinned
    for index, members in enumerate(kinds):
        device = problem.devices[members[0]]
        foreign = (pinned >= 0) & (pinned != members[0])
        allowed[index] = forward & (_range_sum(foreign.astype(np.float64)) == 0)
        busy = _range_sum(problem.costs.layer_s[:, members[0]]) + device.firing_s
        if not device.wire_is_free:
            busy += (received + sent) * device.wire_s_per_byte
            busy += (received_tensors + sent_tensors) * device.wire_s_per_message
        link = np.maximum(received, sent) / device.link_bytes_per_s
        seconds[index] = np.where(empty, 0.0, np.maximum(busy, link))
        limit = device.memory_bytes
        share[index] = 0.0 if limit is None else np.where(empty, 0.0, held / limit)
    return Segments(kinds, allowed, seconds, share, np.where(empty, 0.0, received))


def best_cuts(
    kinds: Sequence[Sequence[int]], values: Floats, *, total: bool
) -> tuple[float, NDArray[np.intp]] | None:
    """The cuts that minimise the largest value of any segment, or with `total` the sum of values.

    `values` is [kinds, layers+1, layers+1], infinite where a segment must not be. Returns the
    minimum and a device number per layer, or None if no cuts are possible. Segments may be empty.
    """
    count = values.shape[1] - 1
    states, steps = _states([len(members) for members in kinds], count)
    best: dict[tuple[int, ...], Floats] = {states[0]: np.full(count + 1, np.inf)}
    best[states[0]][0] = 0.0
    choice: dict[tuple[int, ...], tuple[NDArray[np.intp], list[int]]] = {}
    for state in states[1:]:
        options, cuts, used = [], [], []
        for kind in steps[state]:
            before = best[_without(state, kind)][:, None]
            through = before + values[kind] if total else np.maximum(before, values[kind])
            at = through.argmin(axis=0)
            options.append(through[at, np.arange(count + 1)])
            cuts.append(at)
            used.append(kind)
        pick = np.argmin(options, axis=0)
        columns = np.arange(count + 1)
        best[state] = np.asarray(options)[pick, columns]
        choice[state] = (np.asarray(cuts)[pick, columns], [used[number] for number in pick])
    final = states[-1]
    if not np.isfinite(best[final][count]):
        return None
    return float(best[final][count]), _trace(kinds, choice, final, count)


def _trace(
    kinds: Sequence[Sequence[int]],
    choice: dict[tuple[int, ...], tuple[NDArray[np.intp], list[int]]],
    state: tuple[int, ...],
    end: int,
) -> NDArray[np.intp]:
    pieces: list[tuple[int, int, int]] = []
    position = end
    while any(state):
        starts, used = choice[state]
        kind, start = used[position], int(starts[position])
        pieces.append((kind, start, position))
        state, position = _without(state, kind), start
    left = [list(members) for members in kinds]
    numbers = np.empty(end, dtype=np.intp)
    for kind, start, stop in reversed(pieces):
        numbers[start:stop] = left[kind].pop(0)
    return numbers


def _states(
    counts: Sequence[int], layers: int
) -> tuple[list[tuple[int, ...]], dict[tuple[int, ...], list[int]]]:
    """How many of each kind are used, in ascending order, and the kinds that may come last."""
    work = float(np.prod([count + 1.0 for count in counts])) * len(counts) * layers**2
    if work <= MAX_WORK:
        states = sorted(itertools.product(*(range(count + 1) for count in counts)), key=sum)
        return states, {
            state: [kind for kind, used in enumerate(state) if used] for state in states
        }
    states = [tuple(0 for _ in counts)]
    steps: dict[tuple[int, ...], list[int]] = {}
    for kind, count in enumerate(counts):
        for used in range(1, count + 1):
            states.append((*counts[:kind], used, *(0 for _ in counts[kind + 1 :])))
            steps[states[-1]] = [kind]
    return states, steps


def _without(state: tuple[int, ...], kind: int) -> tuple[int, ...]:
    return (*state[:kind], state[kind] - 1, *state[kind + 1 :])


def _kinds(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Device numbers by likeness; a device with pinned layers is like no other."""
    kinds: dict[tuple[Device, int], list[int]] = {}
    pinned = set(problem.pinned.tolist())
    for number, device in enumerate(problem.devices):
        own = number if number in pinned else -1
        kinds.setdefault((replace(device, name="", host=None), own), []).append(number)
    return tuple(tuple(members) for members in kinds.values())


def _weights(problem: Problem) -> Floats:
    network = problem.network
    return np.array([network.weight_bytes((layer.name,)) for layer in network.layers], dtype=float)


def _activations(problem: Problem) -> Floats:
    network = problem.network
    return np.array([network.activation_bytes(layer.name) for layer in network.layers], dtype=float)


def _range_sum(values: Floats) -> Floats:
    """[a, b] → sum of values[a:b]."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[None, :] - sums[:, None])


def _range_max(values: Floats) -> Floats:
    """[a, b] → largest of values[a:b], 0 if there is none."""
    count = len(values)
    spread = np.zeros((count + 1, count + 1))
    starts = np.arange(count)
    spread[:-1, 1:] = np.where(starts[:, None] <= starts, values, 0.0)
    return np.maximum.accumulate(spread, axis=1)


def _crossing(problem: Problem) -> tuple[Floats, Floats, Floats, Floats]:
    """For every [a, b): bytes and tensors received, bytes and tensors sent."""
    network = problem.network
    count = len(network.layers)
    position = {layer.name: number for number, layer in enumerate(network.layers)}
    received, received_tensors, sent, sent_tensors = (
        np.zeros((count + 1, count + 2)) for _ in range(4)
    )
    for name, tensor in network.tensors.items():
        producer = position[network.producer[name]] if name in network.producer else -1
        readers = [position[layer] for layer in network.consumers[name]]
        before = producer
        for reader in readers:
            # Starting after `before` and ending after `reader`, this is the first that reads it.
            received[before + 1 : reader + 1, reader + 1] += tensor.bytes
            received_tensors[before + 1 : reader + 1, reader + 1] += 1
            before = reader
        last = count if name in network.outputs else max(readers, default=producer)
        if producer >= 0 and last > producer:
            sent[: producer + 1, producer + 1] += tensor.bytes
            sent[: producer + 1, last + 1] -= tensor.bytes
            sent_tensors[: producer + 1, producer + 1] += 1
            sent_tensors[: producer + 1, last + 1] -= 1
    summed = [
        np.cumsum(table, axis=1)[:, :-1]
        for table in (received, received_tensors, sent, sent_tensors)
    ]
    return summed[0], summed[1], summed[2], summed[3]
