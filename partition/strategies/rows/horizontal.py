"""Horizontal partitioning: every layer in slices of its output channels, slice i on device i.

This is the horizontal partitioning of Tang & Stefanov (UCC 2021), §1: each device holds its share
of every layer's weights. Shares are proportional to the devices' speeds, and smaller where a
device's memory does not suffice for that. A slice reads the whole output of the layer before, so
every tensor travels to every device. A layer that cannot be sliced goes whole to the device where
it causes the least traffic; ties go to the device with the least work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.network import Layer, Network
from cnn.rewrite.rewrites import Slices, part_name
from partition.strategies.base import (
    Problem,
    Rewritable,
    SearchProgress,
    Solution,
    apply_rewrites,
    required_model,
)

ROUNDS = 8
"""The most times that shares are changed for the sake of memory."""


class Horizontal:
    """See the module's docstring."""

    name = "horizontal"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; pinned layers stay whole."""
        model = required_model(problem, self.name)
        speeds = 1 / problem.costs.layer_s.sum(axis=0)
        found = [_divide(problem, model, speeds / speeds.sum())]
        while found[-1].overrun_bytes and len(found) < ROUNDS:
            problem.on_progress(SearchProgress(len(found), ROUNDS, found[-1].sizes))
            shares = _relieved(problem, found[-1])
            if shares is None:
                break
            found.append(_divide(problem, model, shares))
        best = min(found, key=lambda division: division.overrun_bytes)
        problem.on_progress(SearchProgress(ROUNDS, ROUNDS, best.sizes))
        return Solution(
            best.problem.assignment(best.numbers),
            f"{len(best.rewrites)} of {len(problem.network.layers)} layers in slices of output "
            f"channels, {best.sizes} of each; the rest whole where it moves least"
            + ("; no shares were found that fit every device's memory" * bool(best.overrun_bytes)),
            rewrites=best.rewrites,
            network=best.problem.network if best.rewrites else None,
        )


@dataclass(frozen=True)
class _Division:
    """The division that follows from `shares` [devices]; `numbers` [layers of the new problem]."""

    shares: NDArray[np.float64]
    rewrites: tuple[Slices, ...]
    problem: Problem
    numbers: NDArray[np.intp]
    memory_bytes: NDArray[np.float64]
    overrun_bytes: float

    @property
    def sizes(self) -> str:
        """The shares in words."""
        return " : ".join(f"{share:.0%}" for share in self.shares)


def _divide(problem: Problem, model: Rewritable, shares: NDArray[np.float64]) -> _Division:
    sizes = {
        name: channels.divide(shares.tolist())
        for name, channels in model.slice_channels().items()
        if name not in problem.pins
    }
    rewrites = tuple(
        Slices(name, tuple(size for size in channels if size))
        for name, channels in sizes.items()
        if sum(size > 0 for size in channels) > 1
    )
    sliced = apply_rewrites(problem, model, rewrites)
    placed = _pinned(problem)
    for rewrite in rewrites:
        holders = [number for number, size in enumerate(sizes[rewrite.layer]) if size]
        for index, number in enumerate(holders, start=1):
            placed[part_name(rewrite.layer, index, len(holders))] = number
    numbers = _place_the_rest(sliced, placed)
    costs = sliced.costs.evaluate(numbers[None])
    return _Division(
        shares, rewrites, sliced, numbers, costs.memory_bytes[0], float(costs.overrun_bytes[0])
    )


def _pinned(problem: Problem) -> dict[str, int]:
    numbers = {device.name: number for number, device in enumerate(problem.devices)}
    return {layer: numbers[device] for layer, device in problem.pins.items()}


def _place_the_rest(problem: Problem, placed: dict[str, int]) -> NDArray[np.intp]:
    """Return a device for every layer: those of `placed`, and for the others the device where they
    cause the least traffic."""
    network, seconds = problem.network, problem.costs.layer_s
    present: list[set[str]] = [set() for _ in problem.devices]
    load = np.zeros(len(problem.devices))
    for row, layer in enumerate(network.layers):
        if layer.name in placed:
            number = placed[layer.name]
            present[number].update(layer.inputs, layer.outputs)
            load[number] += seconds[row, number]
    numbers = np.empty(len(network.layers), dtype=np.intp)
    for row, layer in enumerate(network.layers):
        if layer.name in placed:
            numbers[row] = placed[layer.name]
            continue
        missing = [_missing_bytes(network, layer, here) for here in present]
        number = min(range(len(missing)), key=lambda i: (missing[i], load[i] + seconds[row, i]))
        numbers[row] = number
        present[number].update(layer.inputs, layer.outputs)
        load[number] += seconds[row, number]
    return numbers


def _missing_bytes(network: Network, layer: Layer, present: set[str]) -> int:
    return sum(network.tensors[name].bytes for name in layer.inputs if name not in present)


def _relieved(problem: Problem, division: _Division) -> NDArray[np.float64] | None:
    """Return shares that move load from overfull devices to the others; None if all are full."""
    limits = np.array([device.memory_bytes or np.inf for device in problem.devices])
    fits = division.memory_bytes <= limits
    if not fits.any():
        return None
    shares = division.shares * np.minimum(1.0, limits / division.memory_bytes)
    freed = 1.0 - shares.sum()
    room = np.where(fits, division.shares, 0.0)
    return np.asarray(shares + freed * room / room.sum())
