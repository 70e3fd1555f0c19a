"""Candidate tilings and their estimated loads: where bands end, the rows of each device, the rest.

Loads are estimated without rewriting the network. Seconds and activations of a layer are in
proportion to the rows that it makes (`Taken.work`). The bytes that bands receive and send, and
their firings, are priced as in the cost model. Traffic among the other layers and waiting channels
are left out.

Shares of rows keep all devices busy for the same time (water-filling): a device that is busy for f
seconds anyway and would take b seconds for all rows has time for (P − f) / b of the rows if every
frame takes P seconds. The shares sum to one for exactly one P, the shortest period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cnn.network import Tensor
from cnn.rewrite.rewrites import Bands, apportion
from partition.pricing.busy import period_s, shared_machines
from partition.pricing.memory_budget import engines_bytes
from partition.pricing.traffic import Floats
from partition.strategies.base import Problem, Rewritable
from partition.strategies.contiguous.cuts import best_cuts
from partition.strategies.contiguous.segments import segments

if TYPE_CHECKING:
    from cnn.rewrite.bands import Band, FusedLayers

ROWS_AXIS = 2
"""The axis of rows, as in `cnn.operators.row_rules`, whose import requires ONNX."""


@dataclass(frozen=True)
class TileLoads:
    """Per device: seconds of work, seconds on the link, bytes held; and the period that follows."""

    busy_s: Floats
    link_s: Floats
    held_bytes: Floats
    period_s: float


class LoadEstimate:
    """Estimates of the loads of one problem's tilings."""

    def __init__(self, problem: Problem) -> None:
        network = problem.network
        self._problem = problem
        self._shared = shared_machines(problem.devices)
        self._seconds = problem.costs.layer_s
        self._row = network.place
        self._weights = np.array(network.layer_weight_bytes, float)
        self._activations = np.array(network.layer_activation_bytes)

    def untiled_s(self, numbers: NDArray[np.intp], tiled: slice) -> Floats:
        """Return the seconds that each device spends on its layers by `numbers` without those of
        `tiled`."""
        mine = self._mine(numbers, tiled)
        return np.asarray((self._seconds * mine).sum(axis=0))

    def loads(
        self, numbers: NDArray[np.intp], tiled: slice, output: str, bands: Mapping[int, Band]
    ) -> TileLoads:
        """Estimate the loads with `bands` by device; `numbers` [layers] gives the devices of the
        layers that are not `tiled`."""
        mine = self._mine(numbers, tiled)
        busy = (self._seconds * mine).sum(axis=0)
        held = self._weights @ mine
        largest = (self._activations[:, None] * mine).max(axis=0)
        phases = mine.any(axis=0).astype(float)
        for device, band in bands.items():
            rows = [self._row[name] for name in band.layers]
            work = np.array([float(taken.work) for taken in band.layers.values()])
            busy[device] += self._seconds[rows, device] @ work
            held[device] += self._weights[rows].sum()
            largest[device] = max(largest[device], (self._activations[rows] * work).max())
            phases[device] += 1
        moved = self._moved(numbers, output, bands)
        received, sent = moved.received_bytes[:, None], moved.sent_bytes[:, None]
        through, rates = received + sent, self._problem.costs.rates
        uncached, fired = rates.uncached_bytes(held[:, None]), phases[:, None]
        phases_s = rates.phases_s(busy[:, None], through, uncached, fired)
        busy_s = rates.busy_s(phases_s, fired, moved.messages[:, None], through)
        link_s = rates.link_s(sent, received)
        period = period_s(self._shared, busy_s, link_s)
        held_bytes = held + largest + engines_bytes(self._problem.devices, np.ones_like(held))
        return TileLoads(busy_s[:, 0], link_s[:, 0], held_bytes, float(period[0]))

    def _mine(self, numbers: NDArray[np.intp], tiled: slice) -> NDArray[np.bool_]:
        mine = numbers[:, None] == np.arange(len(self._problem.devices))
        mine[tiled] = False
        return np.asarray(mine)

    def _moved(self, numbers: NDArray[np.intp], output: str, bands: Mapping[int, Band]) -> _Moved:
        """Return the traffic of the bands if each receives only the rows that it needs."""
        network = self._problem.network
        moved = _Moved(*(np.zeros(len(self._problem.devices)) for _ in range(3)))
        readers = {int(numbers[self._row[layer]]) for layer in network.consumers[output]}
        for device, band in bands.items():
            made = _row_bytes(network.tensors[output]) * band.rows.count
            entering = [_row_bytes(network.tensors[x]) * n.count for x, n in band.received.items()]
            away = list(readers - {device})
            sent = len(away) + (output in network.outputs)
            moved.received_bytes[device] += sum(entering)
            moved.received_bytes[away] += made
            moved.sent_bytes[device] += made * sent
            moved.messages[device] += len(entering) + sent
            moved.messages[away] += 1
        return moved


@dataclass(frozen=True)
class _Moved:
    """Bytes and messages of each device."""

    received_bytes: Floats
    sent_bytes: Floats
    messages: Floats


def _row_bytes(tensor: Tensor) -> float:
    return tensor.bytes / tensor.shape[ROWS_AXIS]


def equal_times(fixed_s: Floats, whole_s: Floats) -> Floats:
    """Return shares [devices] that sum to 1 and end at the same time; 0 for a device that is busy
    until then.

    >>> equal_times(np.array([0.0, 0.0]), np.array([1.0, 3.0]))
    array([0.75, 0.25])

    `fixed_s` [devices] is how long each device is busy anyway, `whole_s` [devices], above 0, how
    long it would take for everything.
    """
    order = np.argsort(fixed_s, kind="stable")
    rates = np.cumsum(1 / whole_s[order])
    periods = (1 + np.cumsum(fixed_s[order] / whole_s[order])) / rates
    return np.asarray(np.maximum(0.0, (periods.min() - fixed_s) / whole_s))


SHORTEST_S = 1e-12
"""Seconds that a layer without any work is taken to need, so that rows can be divided by time."""

MOST_STOPS = 24
"""The most stops that are considered; more are thinned out evenly."""

FEW = 0.25
"""The share of the mean number of rows below which a band hardly pays."""

ROUNDS = 3
"""The number of times that rows are divided again for the cost of each band's halo."""


@dataclass(frozen=True)
class Tiling:
    """The layers [start, stop) in bands of `rows` [devices]; `numbers` [layers] is for the others.

    `loads` are estimates. `halo_share` is the arithmetic that the halo adds, relative to that of
    the tiled layers.
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
        """Return the rewrite."""
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
        self._estimate = LoadEstimate(problem)
        self.start = next((i for i, name in enumerate(names) if name in able), len(names))
        self._limit = next(
            (i for i in range(self.start, len(names)) if names[i] not in able), len(names)
        )
        self.stops = self._find_stops()

    def _find_stops(self) -> list[int]:
        """Return the positions where tiles may stop: later layers need one tensor of the tiled
        layers.

        A stop is not allowed before a layer without arithmetic that reads this tensor alone: that
        layer costs the bands next to nothing and may reduce the tensor that has to be joined.
        """
        network = self._problem.network
        made: set[str] = set()
        found: list[int] = []
        last_reader = {
            name: max((network.place[reader] for reader in readers), default=-1)
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
        """Yield tilings that end at `stop`, with the rest on one device, on two and so on.

        Each comes once with all devices that have time left, and once without devices that would
        get few rows: these hardly shorten the period, but send and receive like the others.
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
        """Return devices of the layers that are not tiled: segments with the shortest period on at
        most `most` devices.

        If no segments respect the pins, the pins are kept, and each layer between them follows the
        one before it.
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
        """Divide rows among the `chosen` devices with time left by `numbers`; None if only one
        has."""
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
    """Replace every −1 by the number before it, or by the first number of all."""
    known = np.flatnonzero(numbers >= 0)
    if not len(known):
        return np.zeros_like(numbers)
    places = np.maximum(np.searchsorted(known, np.arange(len(numbers)), side="right") - 1, 0)
    return numbers[known[places]]
