"""Candidate tilings: where fused tiles stop, the devices of the rest, and the rows of each device.

Quick estimates for `partition.strategies.rows.tiles`: seconds of layers in proportion to the rows
that they make, and the bytes that bands receive and send.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cnn.rewrite.rewrites import Bands, apportion
from partition.strategies.base import Problem, Rewritable
from partition.strategies.contiguous.best_cuts import best_cuts
from partition.strategies.contiguous.segments import segments
from partition.strategies.rows.band_shares import equal_times
from partition.strategies.rows.tile_loads import LoadEstimate, TileLoads

if TYPE_CHECKING:
    from cnn.rewrite.band_rows import FusedLayers

SHORTEST_S = 1e-12
"""What layers without any work are taken to take, so that rows can be dealt out by time."""

MOST_STOPS = 24
"""How many places to stop at are considered; more are thinned out evenly."""

FEW = 0.25
"""The share of the mean number of rows below which a band hardly pays."""

ROUNDS = 3
"""How often rows are dealt out anew for what the halo costs each band."""


@dataclass(frozen=True)
class Tiling:
    """Layers [start, stop) in bands of `rows` [devices]; `numbers` [layers] is for the others.

    `loads` are estimates; `halo_share` is the arithmetic that the halo adds to the tiled layers.
    """

    start: int
    stop: int
    rows: tuple[int, ...]
    numbers: NDArray[np.intp]
    loads: TileLoads
    halo_share: float

    @property
    def devices(self) -> list[int]:
        """The device of each band."""
        return [number for number, count in enumerate(self.rows) if count]

    def bands(self, problem: Problem) -> Bands:
        """The rewrite."""
        layers = problem.network.layers[self.start : self.stop]
        return Bands(tuple(layer.name for layer in layers), tuple(filter(None, self.rows)))


class Tilings:
    """The tilings of a problem with more than one device."""

    def __init__(self, problem: Problem, model: Rewritable) -> None:
        self._problem = problem
        self._model = model
        priced = segments(problem)
        self._kinds = priced.kinds
        self._segment_s = np.where(priced.allowed, priced.seconds, np.inf)
        able = set(model.band_layers()) - problem.pins.keys()
        names = [layer.name for layer in problem.network.layers]
        self._position = {name: number for number, name in enumerate(names)}
        self._estimate = LoadEstimate(problem)
        self.start = next((i for i, name in enumerate(names) if name in able), len(names))
        self._limit = next(
            (i for i in range(self.start, len(names)) if names[i] not in able), len(names)
        )
        self.stops = self._find_stops()

    def _find_stops(self) -> list[int]:
        """Positions where tiles may stop: a single tensor of the tiled layers is needed there.

        Not in front of a layer without arithmetic that reads this tensor alone: it costs the
        bands next to nothing and may make what has to be joined smaller.
        """
        network = self._problem.network
        made: set[str] = set()
        found: list[int] = []
        last_reader = {
            name: max((self._position[reader] for reader in readers), default=-1)
            for name, readers in network.consumers.items()
        }
        for position in range(self.start, self._limit):
            made.update(network.layers[position].outputs)
            made = {x for x in made if last_reader[x] > position or x in network.outputs}
            if len(made) == 1 and not self._goes_on(position + 1, made):
                found.append(position + 1)
        if len(found) <= MOST_STOPS:
            return found
        return [found[round(place)] for place in np.linspace(0, len(found) - 1, MOST_STOPS)]

    def at(self, stop: int) -> Iterator[Tiling]:
        """Yield tilings that stop there, with the rest on one device, on two and so on.

        Each once with all devices that have time left, and once without those that would get but
        few rows: these hardly shorten the period, but send and receive like the others.
        """
        names = [layer.name for layer in self._problem.network.layers[self.start : stop]]
        fused = self._model.fused(names)
        for most in range(1, len(self._problem.devices) + 1):
            numbers = self._others(stop, most)
            tiling = self._tiling(stop, fused, numbers, set(range(len(self._problem.devices))))
            if tiling is None:
                continue
            yield tiling
            fewest = FEW * fused.height / len(tiling.devices)
            chosen = {number for number in tiling.devices if tiling.rows[number] >= fewest}
            if len(chosen) < len(tiling.devices):
                without_few = self._tiling(stop, fused, numbers, chosen)
                if without_few is not None:
                    yield without_few
            if all(tiling.rows[number] for number in numbers[stop:]):
                return

    def _goes_on(self, position: int, crossing: set[str]) -> bool:
        if position >= self._limit:
            return False
        layer = self._problem.network.layers[position]
        return not layer.macs and set(layer.inputs) == crossing

    def _others(self, stop: int, most: int) -> NDArray[np.intp]:
        """Devices of the layers that are not tiled: segments, the shortest period for so many.

        Pins that no segments respect are kept; the layers between follow the ones before them.
        """
        numbers = self._problem.pinned.copy()
        if stop < len(numbers):
            values = self._segment_s[:, stop:, stop:]
            found = best_cuts(self._kinds, values, total=False, most=most)
            if found is not None:
                numbers[stop:] = found[1]
        return _filled(numbers)

    def _tiling(
        self, stop: int, fused: FusedLayers, numbers: NDArray[np.intp], chosen: set[int]
    ) -> Tiling | None:
        """Rows for the `chosen` devices that `numbers` leave time for; None if that is but one."""
        tiled = slice(self.start, stop)
        fixed = self._estimate.untiled_s(numbers, tiled)
        barred = [number for number in range(len(fixed)) if number not in chosen]
        busy_till = fixed.copy()
        busy_till[barred] = np.inf
        whole = np.maximum(self._problem.costs.layer_s[tiled].sum(axis=0), SHORTEST_S)
        slower = np.ones(len(fixed))
        best: Tiling | None = None
        for _ in range(ROUNDS):
            rows = apportion(fused.height, equal_times(busy_till, whole * slower).tolist())
            used = [number for number, count in enumerate(rows) if count]
            if len(used) < 2:
                break
            found = fused.bands([rows[number] for number in used])
            bands = dict(zip(used, found.bands, strict=True))
            loads = self._estimate.loads(numbers, tiled, fused.output, bands)
            if best is None or loads.period_s < best.loads.period_s:
                best = Tiling(self.start, stop, tuple(rows), numbers, loads, found.halo_share)
            shares = np.array([rows[number] / fused.height for number in used])
            slower[used] = (loads.busy_s - fixed)[used] / (whole[used] * shares)
        return best


def _filled(numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Every −1 replaced by the number before it, or by the first one of all."""
    known = np.flatnonzero(numbers >= 0)
    if not len(known):
        return np.zeros_like(numbers)
    places = np.maximum(np.searchsorted(known, np.arange(len(numbers)), side="right") - 1, 0)
    return numbers[known[places]]
