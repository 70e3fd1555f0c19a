"""Fused tiles: the first layers in bands of rows, band i on device i, and the rest in segments.

Early layers have large tensors and few weights. Bands, each with the halo that it needs, are
computed without any exchange between devices from the input to the last banded layer, at the price
of rows that are computed twice. Each further banded layer is shared as well, but makes the halo of
all layers before it larger, so the place where bands end matters most.

The bands may end wherever a single tensor passes, with the rest on one device or in the best
contiguous segments on several. Rows are dealt out so that all devices are busy for the same time,
halo and rest included (`partition.strategies.rows.tilings`). The best candidates by a quick
estimate are rewritten and priced by the cost model. Then it is also decided who cuts rows out of
the input: each device from its own input, or one device for all.

Source: Z. Zhao, K. M. Barijough, A. Gerstlauer, "DeepThings: distributed adaptive deep learning
inference on resource-constrained IoT edge clusters", 2018, the data partitioning of Tang & Stefanov
(2021), §1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cnn.rewrite.rewrites import part_name
from partition.pricing.memory_budget import room_bytes
from partition.strategies.base import (
    Problem,
    Rewritable,
    SearchProgress,
    Solution,
    apply_rewrites,
    required_model,
)
from partition.strategies.chosen import objective_value
from partition.strategies.contiguous.sequential import Sequential
from partition.strategies.rows.tilings import Tiling, Tilings

PRICED = 10
"""The number of tilings that are rewritten and priced."""

TOLERANCE = 0.01
"""By how much the objective may be missed for the sake of fewer bytes (relative)."""


class Tiles:
    """See the module's docstring."""

    name = "tiles"

    def solve(self, problem: Problem) -> Solution:
        """See `Strategy.solve`; pinned layers stay whole, and tiles stop before them.

        Where nothing can be tiled, the layers are divided as `sequential` does; its errors apply.
        """
        model = required_model(problem, self.name)
        tilings = Tilings(problem, model)
        steps = len(tilings.stops) + PRICED
        found: list[Tiling] = []
        for done, stop in enumerate(tilings.stops, start=1):
            found += tilings.at(stop)
            problem.on_progress(SearchProgress(done, steps, f"{len(found)} tilings estimated"))
        if not found:
            return _untiled(problem)
        promising = sorted(found, key=lambda tiling: _estimated_rank(problem, tiling))[:PRICED]
        priced: list[_Priced] = []
        for done, tiling in enumerate(promising, start=1 + steps - len(promising)):
            priced += _price(problem, model, tiling)
            best = _best(priced)
            problem.on_progress(SearchProgress(done, steps, _explanation(problem, best)))
        return Solution(
            best.problem.assignment(best.numbers),
            _explanation(problem, best),
            rewrites=(best.tiling.bands(problem),),
            network=best.problem.network,
        )


@dataclass(frozen=True)
class _Priced:
    """A tiling after rewriting: `problem` is the rewritten problem, `numbers` its assignment.

    `overrun_bytes` is the excess over devices' memory, `value` the objective.
    """

    tiling: Tiling
    problem: Problem
    numbers: NDArray[np.intp]
    overrun_bytes: float
    value: float
    wire_bytes: float


def _best(priced: list[_Priced]) -> _Priced:
    """Return the tiling with the fewest bytes sent among the best by memory, then by objective."""
    least = min(each.overrun_bytes for each in priced)
    fitting = [each for each in priced if each.overrun_bytes == least]
    enough = min(each.value for each in fitting) * (1 + TOLERANCE)
    return min((each for each in fitting if each.value <= enough), key=lambda x: x.wire_bytes)


def _untiled(problem: Problem) -> Solution:
    found = Sequential().solve(problem)
    why = (
        "one device has nothing to share in tiles"
        if len(problem.devices) == 1
        else "no layers at the beginning can be computed in bands of rows by two devices"
    )
    return Solution(found.assignment, f"{why}; {found.explanation}")


def _estimated_rank(problem: Problem, tiling: Tiling) -> tuple[float, float]:
    """Return the estimated excess over memory limits, then the estimated objective."""
    limits = np.array([device.memory_bytes or np.inf for device in problem.devices])
    held = tiling.loads.held_bytes
    overrun = np.maximum(held - limits, 0.0).sum()
    if problem.objective == "memory":
        return float(overrun), float((held / room_bytes(problem.devices)).max())
    return float(overrun), tiling.loads.period_s


def _price(problem: Problem, model: Rewritable, tiling: Tiling) -> list[_Priced]:
    """Rewrite the network by a tiling, and price every way of cutting rows out of its input."""
    tiled = apply_rewrites(problem, model, [tiling.bands(problem)])
    population = _placements(problem, tiled, tiling)
    costs = tiled.costs.evaluate(population)
    value = costs.latency_s if problem.objective == "latency" else objective_value(tiled, costs)
    measures = (costs.overrun_bytes.tolist(), value.tolist(), costs.wire_bytes.tolist())
    return [
        _Priced(tiling, tiled, numbers, *found)
        for numbers, *found in zip(population, *measures, strict=True)
    ]


def _placements(problem: Problem, tiled: Problem, tiling: Tiling) -> NDArray[np.intp]:
    """Return assignments [ways, layers of `tiled`] that differ in the device that cuts rows out of
    the bands' input.

    In the first way each band's device cuts for itself and receives the whole input. In the others,
    one way per device, one device cuts for all and sends the rows to the others.
    """
    network = problem.network
    count = len(tiling.devices)
    known: dict[str, int] = {}
    for number, layer in enumerate(network.layers):
        if tiling.start <= number < tiling.stop:
            for band, device in enumerate(tiling.devices, start=1):
                known[part_name(layer.name, band, count)] = device
        else:
            known[layer.name] = int(tiling.numbers[number])
    largest = int(np.argmax(tiling.rows))
    numbers = np.array([known.get(layer.name, largest) for layer in tiled.network.layers])
    cuts = [
        (row, known[tiled.network.consumers[layer.outputs[0]][0]])
        for row, layer in enumerate(tiled.network.layers)
        if layer.name not in known and tiled.network.consumers[layer.outputs[0]]
    ]
    population = np.tile(numbers, (1 + len(problem.devices), 1))
    for row, own in cuts:
        population[0, row] = own
        population[1:, row] = np.arange(len(problem.devices))
    return population


def _explanation(problem: Problem, best: _Priced) -> str:
    layers, tiling = problem.network.layers, best.tiling
    last = layers[tiling.stop - 1].name
    rows = " + ".join(str(count) for count in tiling.rows if count)
    rest = len({*tiling.numbers[: tiling.start].tolist(), *tiling.numbers[tiling.stop :].tolist()})
    text = (
        f"{tiling.stop - tiling.start} of {len(layers)} layers, to {last!r}, "
        f"fused in {len(tiling.devices)} bands of {rows} rows, whose halo adds "
        f"{tiling.halo_share:.1%} to their arithmetic"
    )
    if rest:
        text += f"; the others on {rest} of the devices"
    if best.overrun_bytes > 0:
        text += "; no tiling was found that fits every device's memory"
    return text
